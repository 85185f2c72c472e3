package server

import (
	"fmt"
	"net"
)

// CheckExposure returns an error when an API without authentication would listen where others than this
// machine's own processes can reach it, unless that was asked for.
func CheckExposure(listen string, insecure bool) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return fmt.Errorf("--listen %q: write host:port, such as 127.0.0.1:8080", listen)
	}
	ip := net.ParseIP(host)
	if insecure || host == "localhost" || (ip != nil && ip.IsLoopback()) {
		return nil
	}
	return fmt.Errorf("--listen %s: there is no authentication, so only loopback addresses such as 127.0.0.1:8080 are allowed; "+
		"with --insecure-no-auth anybody who can reach the address may do anything", listen)
}
