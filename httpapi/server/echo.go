package server

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
)

// echoLimit is how much of a request the echo target reads.
const echoLimit = 64 << 10

// withEcho adds the target of the sample jobs: /echo answers every request with what it got, and with the
// status that ?status= asks for.
func withEcho(api http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", echo)
	mux.Handle("/", api)
	return mux
}

func echo(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, echoLimit))
	if err != nil {
		http.Error(w, "the body is larger than 64 KiB", http.StatusRequestEntityTooLarge)
		return
	}
	status, err := strconv.Atoi(r.URL.Query().Get("status"))
	if err != nil || status < 200 || status > 599 {
		status = http.StatusOK
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"method": r.Method, "headers": r.Header, "body": string(body)}) // the client may be gone
}
