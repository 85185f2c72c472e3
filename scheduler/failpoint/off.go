//go:build !failpoint

package failpoint

// At does nothing.
func At(Point) {}
