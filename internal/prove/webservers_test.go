package prove

import (
	"strings"
	"syscall"
	"testing"

	"punctual/internal/pgtest"
)

// webServer is a server that jobs call, as Debian packages it. Its arguments and files may contain {dir}, its
// directory; {address}, where it listens; {behind}, the address of the server behind it; and {generation}, the number
// of its configuration. Its access log is {dir}/access.log, or stdout. A line of the log has the run, the attempt, the
// status of the answer, and the generation that answered. A request without a run has "-" there.
//
// The path /fault answers 500, every other path 2xx.
type webServer struct {
	name string
	// names are the names of the program, and install says how to get it.
	names   []string
	install string
	args    []string // run it in the foreground
	files   map[string]string
	// stop lets it answer what it has read and then end. reload makes it read its files anew: old processes answer what
	// they have read, new ones take what comes. Both are what the package's own service uses.
	stop, reload syscall.Signal
	behind       *webServer // answers for this one; nil: none
}

func (s webServer) program(t *testing.T) string {
	t.Helper()
	return pgtest.Program(t, s.install, s.names...)
}

// webServers returns all servers.
func webServers() []webServer { return []webServer{nginx(), apache(), gunicorn(), haproxyBeforeNode()} }

func nginx() webServer {
	return webServer{
		name: "nginx", names: []string{"nginx", "/usr/sbin/nginx"}, install: "apt-get install nginx",
		args: []string{"-p", "{dir}", "-e", "stderr", "-c", "nginx.conf"},
		stop: syscall.SIGQUIT, reload: syscall.SIGHUP,
		files: map[string]string{"nginx.conf": `
			daemon off;
			worker_processes 2;
			pid nginx.pid;
			error_log stderr;
			events { worker_connections 256; }
			http {
				log_format seen '$http_punctual_run $http_punctual_attempt $status {generation}';
				access_log access.log seen;
				client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi;
				scgi_temp_path scgi;
				server {
					listen {address};
					location / { return 200 ok; }
					location /fault { return 500; }
				}
			}`},
	}
}

// apache has its children run as nobody if it is started by root, because it refuses to serve as root.
func apache() webServer {
	modules := ""
	for _, name := range []string{"mpm_event", "authz_core", "rewrite"} {
		modules += "LoadModule " + name + "_module /usr/lib/apache2/modules/mod_" + name + ".so\n"
	}
	return webServer{
		name: "apache", names: []string{"apache2", "/usr/sbin/apache2"}, install: "apt-get install apache2-bin",
		args: []string{"-d", "{dir}", "-f", "{dir}/apache.conf", "-D", "FOREGROUND"},
		stop: syscall.SIGWINCH, reload: syscall.SIGUSR1,
		files: map[string]string{"apache.conf": modules + `
			DefaultRuntimeDir {dir}
			PidFile {dir}/apache.pid
			ErrorLog {dir}/error.log
			DocumentRoot {dir}
			ServerName localhost
			Listen {address}
			User #65534
			Group #65534
			StartServers 1
			LogFormat "%{Punctual-Run}i %{Punctual-Attempt}i %>s {generation}" seen
			CustomLog {dir}/access.log seen
			RewriteEngine on
			RewriteRule ^/fault - [R=500,L]
			RewriteRule .* - [R=204,L]`},
	}
}

// gunicorn closes a connection that was idle for two seconds, as is its default. Before it ends, it waits for
// connections on which nothing has come yet: for ten seconds here rather than thirty. The format of its log stays as it
// is when it is reloaded, so the application says which generation it is. Python must not take an earlier one for the
// same because it was written in the same second.
func gunicorn() webServer {
	return webServer{
		name: "gunicorn", names: []string{"gunicorn"}, install: "apt-get install gunicorn",
		args: []string{"--config={dir}/gunicorn.conf.py", "app:app"},
		stop: syscall.SIGTERM, reload: syscall.SIGHUP,
		files: map[string]string{
			"gunicorn.conf.py": unindented(`
				import sys
				sys.dont_write_bytecode = True
				chdir = worker_tmp_dir = "{dir}"
				bind = "{address}"
				worker_class = "gthread"
				workers, threads = 2, 4
				graceful_timeout = 10
				accesslog = "{dir}/access.log"
				access_log_format = "%({punctual-run}i)s %({punctual-attempt}i)s %(s)s %({answered-by}o)s"`),
			"app.py": unindented(`
				def app(environ, start_response):
				    environ["wsgi.input"].read()
				    status = "500 Fault" if environ["PATH_INFO"] == "/fault" else "200 OK"
				    start_response(status, [("Content-Length", "0"), ("Answered-By", "{generation}")])
				    return [b""]`),
		},
	}
}

// haproxyBeforeNode hands its sockets over to the process that replaces it, as its manual says for reloads.
func haproxyBeforeNode() webServer {
	behind := node()
	return webServer{
		name: "haproxy", names: []string{"haproxy", "/usr/sbin/haproxy"}, install: "apt-get install haproxy",
		args: []string{"-W", "-f", "{dir}/haproxy.cfg"},
		stop: syscall.SIGUSR1, reload: syscall.SIGUSR2, behind: &behind,
		files: map[string]string{"haproxy.cfg": `
			global
			  log stdout format raw local0
			  stats socket {dir}/admin mode 600 level admin expose-fd listeners
			defaults
			  mode http
			  timeout connect 10s
			  timeout client 1m
			  timeout server 1m
			frontend front
			  bind {address}
			  log global
			  http-request capture req.hdr(Punctual-Run) len 36
			  http-request capture req.hdr(Punctual-Attempt) len 9
			  log-format "%[capture.req.hdr(0)] %[capture.req.hdr(1)] %ST {generation}"
			  default_backend back
			backend back
			  server node {behind}
`},
	}
}

func node() webServer {
	return webServer{
		name: "node", names: []string{"node"}, install: "apt-get install nodejs",
		args: []string{"{dir}/server.js"},
		stop: syscall.SIGTERM,
		files: map[string]string{"server.js": `
			const log = require("fs").openSync("{dir}/access.log", "a");
			const server = require("http").createServer((request, response) => {
				request.resume().on("end", () => {
					response.statusCode = request.url === "/fault" ? 500 : 200;
					const of = (name) => request.headers["punctual-" + name] ?? "-";
					require("fs").writeSync(log, of("run") + " " + of("attempt") + " " + response.statusCode + " {generation}\n");
					if (!server.listening) response.setHeader("connection", "close");
					response.end("ok");
				});
			});
			const [host, port] = "{address}".split(":");
			server.listen({ host, port });
			process.on("SIGTERM", () => { server.close(); server.closeIdleConnections(); });`},
	}
}

// unindented removes the indentation of the first line from all lines, because Python heeds it.
func unindented(text string) string {
	margin := text[:len(text)-len(strings.TrimLeft(text, "\n\t"))]
	return strings.ReplaceAll(text[len(margin):], margin, "\n") + "\n"
}
