package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"punctual/httpapi/problem"
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

// IfMatch is the condition of writes that must not overwrite somebody else's change.
type IfMatch struct {
	Tag string `header:"If-Match" doc:"The job's ETag, or its version in quotes. The operation fails with 412 if the job has been changed since. Runs do not change the version. * means any version of an existing job." example:"\"7\""`
}

// version returns the version that the condition names, or nil for none or *. A tag that is no ETag of a job gets
// 412.
func (m IfMatch) version() (*int32, error) {
	if m.Tag == "" || m.any() {
		return nil, nil
	}
	if strings.Contains(m.Tag, ",") {
		return nil, problem.Invalid(problem.At("header.If-Match", "must be one ETag"))
	}
	number, opened := strings.CutPrefix(m.Tag, `"`)
	number, closed := strings.CutSuffix(number, `"`)
	number, _, _ = strings.Cut(number, ".")
	version, err := strconv.ParseInt(number, 10, 32)
	if !opened || !closed || err != nil {
		return nil, problem.New(problem.CodeVersion, "The If-Match is not the ETag of any version of a job.")
	}
	return new(int32(version)), nil
}

// any reports whether the condition is only that the job exists, in any version.
func (m IfMatch) any() bool { return strings.TrimSpace(m.Tag) == "*" }
