package migrations

// UpFrom is Up with other migrations than those of this binary.
var UpFrom = up
