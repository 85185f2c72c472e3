package store

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"

	"punctual/scheduler"
)

// One tenant's large definitions take a bounded part of the memory that the replica has for all.
func TestCompiledDefinitionsAreBoundedInSize(t *testing.T) {
	c, err := newCompiled()
	if err != nil {
		t.Fatal(err)
	}
	large := scheduler.MaxPayload
	key := func(i int) jobVersion { return jobVersion{id: uuid.NewSHA1(uuid.Nil, fmt.Append(nil, i)), version: 1} }
	var adding sync.WaitGroup
	for range 4 { // several replicas' loops compile the same at once
		adding.Go(func() {
			for i := range 1000 {
				c.add(key(i), &scheduler.Job{}, large)
			}
		})
	}
	adding.Wait()
	if n := int64(c.Len()); c.bytes.Load() > compiledBytes || n*weight(large) != c.bytes.Load() || n < 50 {
		t.Errorf("%d definitions of %d bytes are kept as %d bytes", n, weight(large), c.bytes.Load())
	}
	if _, ok := c.get(key(999)); !ok {
		t.Error("the one that was used last is gone")
	}
	for i := range mostCompiled {
		c.add(key(i), &scheduler.Job{}, 500)
	}
	if n := int64(c.Len()); n != mostCompiled || n*weight(500) != c.bytes.Load() {
		t.Errorf("%d small definitions are kept as %d bytes", n, c.bytes.Load())
	}
	c.Purge()
	if c.bytes.Load() != 0 {
		t.Errorf("%d bytes of nothing", c.bytes.Load())
	}
}
