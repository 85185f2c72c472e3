// Package names finds jobs by what callers call them: an id, a name, or labels.
package names
