package store

import (
	"sync"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"

	"punctual/scheduler"
)

// What a replica keeps of compiled definitions, which all tenants share: those used last, up to a number of them and up to
// a size. Most are far smaller than the average that both bounds meet at; one may have a body of 256 KiB.
const (
	mostCompiled  = 20_000
	compiledBytes = 64 << 20
)

// compiled is a cache of definitions that are ready to use. It is safe for concurrent use.
type compiled struct {
	*lru.Cache[jobVersion, weighed]
	adding sync.Mutex
	bytes  atomic.Int64
}

type weighed struct {
	job   *scheduler.Job
	bytes int64
}

// weight is about what a compiled definition takes, in bytes, by the length of its text: it has its body twice.
func weight(text int) int64 { return int64(2<<10 + 2*text) }

func newCompiled() (*compiled, error) {
	c := &compiled{}
	var err error
	c.Cache, err = lru.NewWithEvict(mostCompiled, func(_ jobVersion, gone weighed) { c.bytes.Add(-gone.bytes) })
	return c, err
}

// get returns a definition that is kept, and counts it as used.
func (c *compiled) get(key jobVersion) (*scheduler.Job, bool) {
	found, ok := c.Get(key)
	return found.job, ok
}

// add keeps a definition that was compiled from a text of so many bytes. What was not used for longest goes for it.
func (c *compiled) add(key jobVersion, job *scheduler.Job, text int) {
	c.adding.Lock()
	defer c.adding.Unlock()
	kept := weighed{job, weight(text)}
	if was, ok := c.Peek(key); ok {
		c.bytes.Add(-was.bytes)
	}
	c.bytes.Add(kept.bytes)
	c.Add(key, kept)
	for c.bytes.Load() > compiledBytes {
		if _, _, ok := c.RemoveOldest(); !ok {
			return
		}
	}
}
