from spolia.indexing.readers.pictures import image as image
from spolia.indexing.readers.pictures import linked_images as linked_images
from spolia.indexing.readers.pictures import ocr as ocr
from spolia.indexing.readers.pictures import pages as pages
