package delivery_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"punctual/scheduler/delivery"
	"punctual/scheduler/delivery/guard"
	"punctual/scheduler/delivery/wire"
)

func Example() {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "closed for lunch", http.StatusServiceUnavailable)
	}))
	defer target.Close()

	client := delivery.New(delivery.Config{UserAgent: "punctual/1.0", Guard: guard.New(guard.Loopback)})
	defer client.Close()

	u, err := wire.CheckURL(target.URL + "/hooks/nightly")
	if err != nil {
		fmt.Println("url:", err)
		return
	}
	res := client.Send(context.Background(), wire.Request{
		Method:  http.MethodPost,
		URL:     u,
		Header:  http.Header{"Content-Type": {"application/json"}},
		Extra:   []wire.Header{{Name: "Punctual-Attempt", Value: "1"}},
		Body:    []byte(`{"report":"nightly"}`),
		Timeout: 10 * time.Second,
	})
	fmt.Println(res.OK(), res.Status, res.Reason, res.RetryAfter)
	fmt.Printf("%s: %s", res.Error, res.Body)
	// Output:
	// false 503 http_5xx 30s
	// the target answered 503: closed for lunch
}

func ExampleCheckURL() {
	for _, raw := range []string{
		"example.com/hook", "https://me:pw@example.com/", "http://127.1/", "https://example.com/hook",
	} {
		_, err := wire.CheckURL(raw)
		fmt.Println(err)
	}
	// Output:
	// must be an absolute http or https URL, such as https://example.com/hook
	// must not hold a user or password; put them into a header
	// must have an IPv4 address of four decimal numbers, such as 192.0.2.1
	// <nil>
}
