package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"
)

// Healthcheck asks the replica on this machine whether it is ready. An image without a shell has nothing else to ask with.
type Healthcheck struct {
	Listen  string        `default:"127.0.0.1:8080" help:"Address the replica listens on, as for serve."`
	Timeout time.Duration `default:"3s" help:"How long to wait for the response."`
}

// Validate is called by the flag parser.
func (c *Healthcheck) Validate() error {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		return fmt.Errorf("--listen %q: write host:port, such as 127.0.0.1:8080", c.Listen)
	}
	if c.Timeout <= 0 || c.Timeout > time.Minute {
		return fmt.Errorf("--timeout: %s is outside 0s to 1m", c.Timeout)
	}
	return nil
}

// Run exits with 0 when the replica is ready, else with 1 and the reason.
func (c *Healthcheck) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	address := reachable(c.Listen)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/readyz", nil)
	if err != nil {
		return err
	}
	// No proxy of the environment: the replica is on this machine.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("not ready: no response from %s within %s", address, c.Timeout)
	case err != nil:
		return fmt.Errorf("not ready: cannot connect to %s: %s", address, whyUnreachable(err))
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("not ready: %s responds with %d: %s", address, response.StatusCode, detail(response.Body))
	}
	_, err = fmt.Fprintln(os.Stdout, "ready")
	return err
}

// reachable is an address to connect to for what listens on another, which may be all of them.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	ip, err := netip.ParseAddr(host)
	switch {
	case host == "", err == nil && ip.IsUnspecified() && ip.Is4():
		host = "127.0.0.1"
	case err == nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}

// detail is what a problem says, or how a body that is none begins.
func detail(body io.Reader) string {
	text, _ := io.ReadAll(io.LimitReader(body, 4<<10)) // what has arrived is as good as there is
	var problem struct{ Detail string }
	if json.Unmarshal(text, &problem) == nil && problem.Detail != "" {
		return problem.Detail
	}
	return fmt.Sprintf("%.100q", text)
}
