package delivery

import (
	"io"
	"sync"
)

var scratch = sync.Pool{New: func() any { return new([8 << 10]byte) }}

// readBody reads body to its end or to limit, whichever comes first, and returns its first keep bytes. It reads on
// past what is kept so that the connection can be used again. truncated means that there may be more than was kept.
// The error at the end of the body is io.EOF, and at the limit nil.
func readBody(body io.Reader, limit, keep int64) (kept []byte, truncated bool, err error) {
	buf := scratch.Get().(*[8 << 10]byte)
	defer scratch.Put(buf)
	for limit > 0 {
		n, err := body.Read(buf[:min(limit, int64(len(buf)))])
		limit -= int64(n)
		if room := min(int64(n), keep-int64(len(kept))); room > 0 {
			kept = append(kept, buf[:room]...)
			n -= int(room)
		}
		truncated = truncated || n > 0
		if err != nil {
			return kept, truncated || err != io.EOF, err
		}
	}
	return kept, true, nil
}
