package store

import (
	"sync"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Bounds of a replica's caches of compiled definitions and of decrypted secrets. All tenants share these caches, so
// they are bounded in number and in size: most entries are small, but a definition may have a body of 256 KiB, and a
// secret may have 64 KiB.
const (
	mostCompiled  = 20_000
	compiledBytes = 64 << 20
	mostSecrets   = 4096
	mostSigners   = 20_000
	openBytes     = 16 << 20
)

// compiledSize estimates the size of a compiled definition in bytes from the length of its text. The compiled
// definition holds its body twice.
func compiledSize(text int) int { return 2<<10 + 2*text }

// boundedCache keeps the entries used last, up to a number and a size. It is safe for concurrent use.
type boundedCache[K comparable, V any] struct {
	kept   *lru.Cache[K, sized[V]]
	most   int64 // bytes
	adding sync.Mutex
	bytes  atomic.Int64
}

type sized[V any] struct {
	value V
	bytes int64
}

func newBoundedCache[K comparable, V any](number int, bytes int64) *boundedCache[K, V] {
	c := &boundedCache[K, V]{most: bytes}
	// NewWithEvict fails only for numbers below 1.
	c.kept, _ = lru.NewWithEvict(number, func(_ K, gone sized[V]) { c.bytes.Add(-gone.bytes) })
	return c
}

// get returns the value of a key, and counts it as used.
func (c *boundedCache[K, V]) get(key K) (V, bool) {
	found, ok := c.kept.Get(key)
	return found.value, ok
}

// add keeps a value of about so many bytes. It makes room by removing the values that were not used for longest.
func (c *boundedCache[K, V]) add(key K, value V, bytes int) {
	c.adding.Lock()
	defer c.adding.Unlock()
	c.kept.Remove(key)
	c.bytes.Add(int64(bytes))
	c.kept.Add(key, sized[V]{value, int64(bytes)})
	for c.bytes.Load() > c.most {
		if _, _, ok := c.kept.RemoveOldest(); !ok {
			return
		}
	}
}

func (c *boundedCache[K, V]) purge() { c.kept.Purge() }
