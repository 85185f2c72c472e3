package migrations

// UpFrom is Up with other migrations than this binary's.
var UpFrom = up
