package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"punctual/httpapi/client"
)

// Healthcheck asks the replica on this machine whether it is ready. It is for images without a shell, which have no
// other HTTP client.
type Healthcheck struct {
	Listen  string        `default:"127.0.0.1:8080" help:"Address the replica listens on, as for serve."`
	Timeout time.Duration `default:"3s" help:"How long to wait for the response."`
}

// Validate is called by the flag parser.
func (c *Healthcheck) Validate() error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("--listen %q: write host:port, such as 127.0.0.1:8080", c.Listen)
	}
	return within(c.Timeout > 0 && c.Timeout <= time.Minute, "--timeout", c.Timeout, "0s to 1m")
}

// Run returns no error when the replica is ready. Otherwise it returns the reason, and the exit status is 1.
func (c *Healthcheck) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	address := reachable(c.Listen)
	// Without the environment's proxy: the replica is on this machine.
	replica := client.Through("http://"+address, &http.Transport{DisableKeepAlives: true})
	_, err := replica.Do(ctx, http.MethodGet, "/readyz", nil, nil)
	answer, answered := errors.AsType[*client.Error](err)
	switch {
	case err == nil:
		return result("ready", nil)
	case ctx.Err() != nil:
		return fmt.Errorf("not ready: no response from %s within %s", address, c.Timeout)
	case answered:
		var said struct{ Detail string }
		if json.Unmarshal(answer.Body, &said) != nil || said.Detail == "" { // not a problem
			said.Detail = fmt.Sprintf("%.100q", answer.Body)
		}
		return fmt.Errorf("not ready: %s responds with %d: %s", address, answer.Status, said.Detail)
	}
	return fmt.Errorf("not ready: cannot connect to %s: %s", address, whyUnreachable(err))
}

// reachable returns an address to connect to for a listen address. If that is all addresses, it returns loopback.
func reachable(listen string) string {
	host, port, _ := net.SplitHostPort(listen) // Validate has checked it
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "", err == nil && ip.IsUnspecified() && ip.Is4():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}
