package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// etag returns the ETag of one answer that shows a job. If-Match compares only the version in it, so a new run does
// not make an edit fail. The digest is of the whole answer, as If-None-Match demands: the last run and the next slot
// change without a new version.
func etag(version int32, rendered []byte) string {
	sum := sha256.Sum256(rendered)
	return fmt.Sprintf("\"%d.%s\"", version, hex.EncodeToString(sum[:8]))
}

// IfNoneMatch is the condition of reads: the caller wants no answer that it already has.
type IfNoneMatch struct {
	Tags string `header:"If-None-Match" doc:"ETags of earlier responses. If the response would have one of these ETags, it is 304 and has no body." example:"\"7.5f0e8b110c6d9a44\""`
}

// matches reports whether the caller already has the answer with this tag, by the weak comparison of RFC 9110.
func (m IfNoneMatch) matches(tag string) bool {
	for known := range strings.SplitSeq(m.Tags, ",") {
		if known = strings.TrimSpace(known); known == "*" || strings.TrimPrefix(known, "W/") == tag {
			return true
		}
	}
	return false
}
