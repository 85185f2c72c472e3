package store

// The list that a cursor belongs to. That of the audit log is audit.Cursor.
const (
	deadLetterCursor byte = 'd'
	operationCursor  byte = 'o'
)
