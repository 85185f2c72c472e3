package cache

import (
	"sync"
	"testing"
)

// 500 cached values of 64 KiB take a bounded part of a replica's memory.
//
// One tenant's values, in the memory that a replica has for all tenants.
//
//prove:tenants
func TestWhatAReplicaKeepsIsBoundedInNumberAndSize(t *testing.T) {
	const number, bytes = 1000, 1 << 20
	c := New[int, string](number, bytes)
	fill := func(n, size int) {
		var adding sync.WaitGroup
		for range 4 { // several loops look for the same values at once
			adding.Go(func() {
				for i := range n {
					c.Add(i, "value", size)
				}
			})
		}
		adding.Wait()
	}
	fill(500, 64<<10)
	if n := int64(c.kept.Len()); n != 16 || c.bytes.Load() != n*64<<10 {
		t.Errorf("%d large values are kept as %d bytes", n, c.bytes.Load())
	}
	if value, ok := c.Get(499); !ok || value != "value" {
		t.Errorf("of the last one %q is kept", value)
	}
	fill(2*number, 10)
	if n := int64(c.kept.Len()); n != number || c.bytes.Load() != n*10 {
		t.Errorf("%d small values are kept as %d bytes", n, c.bytes.Load())
	}
	if c.Add(0, "too large", 2*bytes); c.bytes.Load() != 0 {
		t.Errorf("%d bytes are kept after one that is too large", c.bytes.Load())
	}
	fill(10, 10)
	if c.Purge(); c.bytes.Load() != 0 {
		t.Errorf("%d bytes of nothing", c.bytes.Load())
	}
}
