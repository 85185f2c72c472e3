// Package manifest reads jobs from files, as JSON or YAML, and writes YAML for people. It does not judge the jobs: the
// API does.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Job is one job of a manifest.
type Job struct {
	Name string
	JSON json.RawMessage // as it was written, or converted from YAML
}

// Read returns the jobs of a text: one job, a list of jobs, or several documents of these. Each has a name, and no two
// have the same.
func Read(text []byte) ([]Job, error) {
	documents, err := readJSON(text)
	if err != nil { // JSON with mistakes is read as YAML, too: that names the line
		documents, err = readYAML(text)
	}
	if err != nil {
		return nil, err
	}
	var jobs []Job
	seen := map[string]bool{}
	for _, raw := range flat(documents) {
		job, err := named(raw)
		if err != nil {
			return nil, fmt.Errorf("job %d %w", len(jobs)+1, err)
		}
		if seen[job.Name] {
			return nil, fmt.Errorf("job %q appears twice", job.Name)
		}
		seen[job.Name] = true
		jobs = append(jobs, job)
	}
	if len(jobs) == 0 {
		return nil, errors.New("there is no job in it")
	}
	return jobs, nil
}

// readJSON returns the JSON values of a text. Their bytes are kept.
func readJSON(text []byte) (values []json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		var value json.RawMessage
		switch err := d.Decode(&value); {
		case errors.Is(err, io.EOF):
			return values, nil
		case err != nil:
			return nil, err
		}
		values = append(values, value)
	}
}

// flat puts the items of lists in place of the lists, and leaves out documents without content.
func flat(documents []json.RawMessage) (items []json.RawMessage) {
	for _, document := range documents {
		var list []json.RawMessage
		switch {
		case string(document) == "null":
		case json.Unmarshal(document, &list) == nil:
			items = append(items, list...)
		default:
			items = append(items, document)
		}
	}
	return items
}

func named(raw json.RawMessage) (Job, error) {
	var job struct{ Name any }
	if err := json.Unmarshal(raw, &job); err != nil {
		return Job{}, errors.New("is not an object with the fields of a job")
	}
	if job.Name == nil || job.Name == "" {
		return Job{}, errors.New("has no name, and jobs are applied by name")
	}
	return Job{fmt.Sprint(job.Name), raw}, nil // the API refuses a name that is no text
}
