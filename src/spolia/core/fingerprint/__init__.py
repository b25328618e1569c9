"""Hash of what a plain function does: of its code, and of what that refers to in the same code base.

Two processes get the same hash for the same files. What is looked at:

- the function as it is written, without comments and docstring, its default values, and what it closes over;
- functions and classes that it names, and those that these name, anywhere in the user's own code: the
  package of the function, and modules that are not installed;
- constants that it names, by value: scalars, tuples, lists, dicts, sets, patterns, enumerations, dataclasses, values
  and operators;
- of other packages the version alone, if they state one; of Python and Spolia nothing.

What is not: code that is reached by a name in a text or through an object's methods, the state of other objects, a
container that the code itself fills, files, environment, and what is named beyond the first `MAX_DEFINITIONS` functions
and classes.

Of a class of Spolia: its definition, and what that names in the packages where results are made (`definition`), without
comments, layout, docstrings, annotations and the words of errors; its `version` covers what else it is built on.
Cache keys, signatures of groups, experiments, gates and the record of versions all ask here.
"""
