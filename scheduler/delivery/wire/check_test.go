package wire

import (
	"strings"
	"testing"
)

func TestCheckMethod(t *testing.T) {
	for _, method := range Methods {
		if err := CheckMethod(method); err != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	for _, method := range []string{"", "post", "TRACE", "CONNECT", "GET ", "FOO"} {
		if err := CheckMethod(method); err == nil || !strings.Contains(err.Error(), "GET, POST") {
			t.Errorf("%q: %v", method, err)
		}
	}
}

func TestCheckHost(t *testing.T) {
	t.Parallel()
	for _, host := range []string{
		"a", "api.internal", "API.internal", "api.internal.", "a-b_c.d:8443", "10.0.0.1", "10.0.0.1:80", "[::1]", "[::1]:8443",
		"xn--bcher-kva.example",
	} {
		if err := CheckHost(host); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	const form = "without scheme, user, path and placeholders"
	for host, text := range map[string]string{
		"": form, "http://a": form, "a/b": form, "a?b": form, "a#b": form, "me@a": form, "a b": form, "a\r\nX: y": form,
		"bücher.example": "punycode", "{{job}}": form, "*.internal": form, "a:": "port", "a:0": "port", "a:99999": "port",
		"a:b": "", "a..b": "labels", "127.1": "IPv4", "::1": "", "[::1": "", "[fe80::1%25eth0]": form, ":80": "",
		strings.Repeat("a", 64): "labels",
	} {
		if err := CheckHost(host); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v, want … %s …", host, err, text)
		}
	}
}

func TestCheckHeader(t *testing.T) {
	for name, value := range map[string]string{
		"Content-Type": "application/json", "authorization": "Bearer abc=", "X-Empty": "", "X-Tab": "a\tb",
		"webhooks": "not ours", "Webhook": "nor this", "X-Webhook-Id": "nor this", "Tea": "nor this",
		"Cookie": "a=b", "X_Under": "score", "Punctual": "not ours", "Punctualities-X": "nor this", "tracestate": "a=b",
		"X-Name": "Grüße", "!#$%&'*+-.^_`|~09azAZ": "token",
	} {
		if err := CheckHeader(name, value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	tests := []struct{ name, value, text string }{
		{"", "x", "needs a name"},
		{"X Y", "x", "letters"},
		{"X:", "x", "letters"},
		{":authority", "x", "letters"},
		{"X\r\nHost", "x", "letters"},
		{"Grüße", "x", "letters"},
		{strings.Repeat("x", 257), "x", "at most 256"},
		{"X", "secret\r\nHost: x", "one line"},
		{"X", "secret\x00", "one line"},
		{"X", "secret\x7f", "one line"},
		{"X", "secret ", "space"},
		{"X", "\tsecret", "space"},
		{"X", strings.Repeat("secret", 2000), "at most 8192"},
		{"Host", "x", "URL; set target.host"},
		{"host", "x", "URL"},
		{"Content-Length", "1", "body"},
		{"Transfer-Encoding", "chunked", "connection"},
		{"Connection", "close", "connection"},
		{"Keep-Alive", "x", "connection"},
		{"Proxy-Authorization", "x", "connection"},
		{"proxy-anything", "x", "connection"},
		{"TE", "trailers", "connection"},
		{"Trailer", "x", "connection"},
		{"Upgrade", "h2c", "connection"},
		{"Expect", "100-continue", "at once"},
		{"webhook-id", "x", "every attempt"},
		{"Webhook-Signature", "x", "every attempt"},
		{"Webhook-Anything", "x", "every attempt"},
		{"IDEMPOTENCY-KEY", "x", "every attempt"},
		{"Punctual-Run", "x", "every attempt"},
		{"Traceparent", "x", "every attempt"},
		{"Punctual_Run", "x", "underscore"},
		{"webhook_signature", "x", "underscore"},
		{"Content_Length", "1", "underscore"},
		{"Transfer_Encoding", "chunked", "underscore"},
		{"HTTP2-Settings", "x", "connection"},
	}
	for _, test := range tests {
		err := CheckHeader(test.name, test.value)
		if err == nil || !strings.Contains(err.Error(), test.text) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %q: got %v, want … %s …", test.name, test.value, err, test.text)
		}
	}
}

func TestCheckURL(t *testing.T) {
	for _, raw := range []string{
		"http://example.com", "https://example.com/hook", "HTTPS://Example.COM:8443/a/b?c=d&e=%20f", "http://localhost:1/",
		"http://a_b-c.example.com./", "http://127.0.0.1:65535/", "http://[::1]:8080/x", "http://[2001:db8::1]",
		"http://xn--mnchen-3ya.de/", "http://3com.com/", "http://host/a;b,c=d!$&'()*+@:~", "http://1.example/?q=[]",
		"http://0xyz/",
	} {
		if _, err := CheckURL(raw); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
	tests := []struct{ raw, text string }{
		{"", "absolute"},
		{"example.com/hook", "absolute"},
		{"/hook", "absolute"},
		{"//example.com/hook", "absolute"},
		{"ftp://example.com", "absolute"},
		{"file:///etc/passwd", "absolute"},
		{"http:example.com", "absolute"},
		{"http:///hook", "absolute"},
		{"http://:80/", "1 to 253"},
		{"http://example.com:0/", "between 1 and 65535"},
		{"http://example.com:65536/", "between 1 and 65535"},
		{"http://example.com:/", "after the colon"},
		{"http://example.com:http/", "valid URL"},
		{"http://user@example.com/", "into a header"},
		{"http://user:secret@example.com/", "into a header"},
		{"http://@example.com/", "into a header"},
		{"http://example.com/#x", "fragment"},
		{"http://example.com/#", "fragment"},
		{"http://example.com/" + strings.Repeat("x", 2048), "2048"},
		{"http://example.com/a b", "percent-encoded"},
		{" http://example.com/", "percent-encoded"},
		{"http://example.com/\r\nHost:x", "percent-encoded"},
		{"http://example.com/\x00", "percent-encoded"},
		{"http://münchen.de/", "punycode"},
		{"http://bücher.example/", "character 'ü' at position 9 must be"},
		{"http://bücher.example/ä", "character 'ü' at position 9 must be"},
		{"http://example.com/ü", "character 'ü' at position 20 must be"},
		{"http://example.com/日本", "character '日' at position 20 must be"},
		{"http://example.com/ü", "percent-encoded"},
		{`http://example.com\@evil.com/`, "percent-encoded"},
		{"http://example.com/%zz", "valid URL"},
		{"http://exa%6dple.com/", "valid URL"},
		{"http://example..com/", "labels"},
		{"http://.example.com/", "labels"},
		{"http://exam!ple.com/", "labels"},
		{"http://" + strings.Repeat("a", 64) + ".com/", "labels"},
		{"http://" + strings.Repeat("a.", 130) + "com/", "253"},
		{"http://127.1/", "four decimal"},
		{"http://2130706433/", "four decimal"},
		{"http://0x7f000001/", "four decimal"},
		{"http://0x7f.0.0.0x1/", "four decimal"},
		{"http://127.0.0.01/", "four decimal"},
		{"http://127.0.0.256/", "four decimal"},
		{"http://example.1/", "four decimal"},
		{"http://127.0.0.1./", "four decimal"},
		{"http://[::1%25eth0]/", "zone"},
		{"http://[::zz]/", ""},
		{"http://[127.0.0.1]/", ""},
		{"http://[::1/", "valid URL"},
	}
	for _, test := range tests {
		_, err := CheckURL(test.raw)
		if err == nil || !strings.Contains(err.Error(), test.text) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v, want … %s …", test.raw, err, test.text)
		}
	}
}
