// Package cache keeps the values that were used last, bounded in number and in size.
package cache

import (
	"sync"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"
)

// Cache keeps the values used last, up to a number and a size in bytes. All tenants share a replica's caches, so one
// tenant's data, however large, must take a bounded part. Safe for concurrent use.
type Cache[K comparable, V any] struct {
	kept   *lru.Cache[K, sized[V]]
	most   int64 // bytes
	adding sync.Mutex
	bytes  atomic.Int64
}

type sized[V any] struct {
	value V
	bytes int64
}

// New returns a cache that is bounded by the number of its values and by their bytes together.
func New[K comparable, V any](number int, bytes int64) *Cache[K, V] {
	c := &Cache[K, V]{most: bytes}
	// NewWithEvict fails only for numbers below 1.
	c.kept, _ = lru.NewWithEvict(number, func(_ K, gone sized[V]) { c.bytes.Add(-gone.bytes) })
	return c
}

// Get returns the value of a key, and counts it as used.
func (c *Cache[K, V]) Get(key K) (V, bool) {
	found, ok := c.kept.Get(key)
	return found.value, ok
}

// Add keeps a value of about so many bytes. It makes room by removing the values that were not used for longest.
func (c *Cache[K, V]) Add(key K, value V, bytes int) {
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

// Purge forgets all values.
func (c *Cache[K, V]) Purge() { c.kept.Purge() }
