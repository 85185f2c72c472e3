package history

// LackingInFeeds finds ended runs that the feeds of changes lack.
const LackingInFeeds = lacking
