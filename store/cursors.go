package store

// The list that a cursor belongs to. That of the audit log is audit.Cursor.
const (
	jobCursor        byte = 'j'
	deadLetterCursor byte = 'd'
	operationCursor  byte = 'o'
)
