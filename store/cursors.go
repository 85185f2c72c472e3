package store

// The list that a cursor belongs to.
const (
	jobCursor        byte = 'j'
	runCursor        byte = 'r'
	deadLetterCursor byte = 'd'
	operationCursor  byte = 'o'
	keyCursor        byte = 'k'
	auditCursor      byte = 'a'
	secretCursor     byte = 's'
)
