package history

// Feeds are the statements that compare feeds of changes with runs that have ended.
var Feeds = map[string]string{"lacking": lacking, "untrue": untrue}
