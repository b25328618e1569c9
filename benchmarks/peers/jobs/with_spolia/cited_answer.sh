spolia ask "Which databases hold the vectors of a store?" docs --no-vectors --llm "$OPENAI_BASE_URL" --model scripted
