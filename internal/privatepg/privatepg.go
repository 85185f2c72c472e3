// Package privatepg runs a private Postgres for `punctual dev` and for tests, from the server binaries that the machine
// already has. It installs nothing.
//
// A Server lives in one directory and belongs to one process, its owner:
//
//	dir/owner.lock    held with flock by the owner; names its process id
//	dir/password      of the superuser over TCP, mode 0600
//	dir/pgdata/       the data directory, made by initdb on the first start
//	dir/run/          the Unix socket, mode 0700: a client that can enter it is trusted
//	dir/postgres.log  the log since this start; the previous log is postgres.log.old
//
// Postgres refuses to run as root. A root owner starts it as an unprivileged user of the machine, and gives that user
// the directory.
//
// Postgres never outlives its owner. On Linux the kernel sends it SIGQUIT when the owner dies, however that happens.
// Elsewhere a small shell watches the owner and does the same. For Postgres that is a crash: the next Start recovers
// from the write-ahead log, and loses nothing that was committed, unless Config.Fast was set.
package privatepg

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"
)

// Superuser is the role that DSN and TCP connect as.
const Superuser = "postgres"

// startPatience bounds Start and Restart if their context has no deadline. It leaves room for crash recovery on a slow
// disk.
const startPatience = 3 * time.Minute

// Config says where a Server lives and how it runs. Only Dir is required.
type Config struct {
	// Dir is the directory for everything the server writes. It is created if it is missing. If it exists, it must be
	// empty or come from an earlier Start.
	Dir string

	// TCP makes the server also listen on a free port of 127.0.0.1, and not only on its Unix socket.
	TCP bool

	// Fast trades durability for speed: fsync off and the like. For tests.
	Fast bool

	// Ephemeral removes Dir when the server stops or its owner dies.
	Ephemeral bool

	// Settings override server settings, as in postgresql.conf.
	Settings map[string]string

	// Env is added to the environment of Postgres, as in exec.Cmd.Env.
	Env []string
}

// Server is a running private Postgres. Its methods may be called from several
// goroutines.
type Server struct {
	cfg      Config
	dir      string // absolute, without symbolic links
	bin      installation
	user     account
	password string
	lock     *os.File

	life   sync.Mutex // held during Stop, Crash and Restart
	closed bool       // guarded by life

	mu      sync.Mutex // guards the fields that a Restart replaces
	socket  string     // directory of the socket
	port    int
	process *process
}

// Start starts Postgres in cfg.Dir and returns when it accepts connections. The first time it creates the database
// cluster. A second owner of the same directory gets an *InUseError.
//
// ctx bounds the start alone, which takes a minute at most if ctx has no deadline. The server runs until Stop, or until
// this process ends.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	ctx, cancel := withPatience(ctx)
	defer cancel()

	s, err := open(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.boot(ctx); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// open locks and prepares the directory, but starts nothing.
func open(cfg Config) (s *Server, err error) {
	dir, existed, err := makeDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && !existed {
			_ = os.Remove(dir) // only tidies up, and only if the directory is empty
		}
	}()
	s = &Server{cfg: cfg, dir: dir}
	if s.user, err = chooseAccount(s.pgdata()); err != nil {
		return nil, err
	}
	if s.bin, err = chooseBinaries(s.pgdata()); err != nil {
		return nil, err
	}
	if err := checkDir(dir, existed); err != nil {
		return nil, err
	}
	if s.lock, err = lockDir(dir); err != nil {
		return nil, err
	}
	return s, nil
}

// boot prepares the contents of the directory and starts Postgres.
func (s *Server) boot(ctx context.Context) error {
	if err := s.user.own(s.dir); err != nil {
		return err
	}
	if err := s.initialise(ctx); err != nil {
		return err
	}
	if err := s.awaitVacancy(ctx); err != nil {
		return err
	}
	return s.launch(ctx)
}

// DSN returns a DSN that connects to a database of this server over its Unix socket, as the superuser. Only this user
// and root can reach the socket.
func (s *Server) DSN(database string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return socketDSN(s.socket, s.port, database)
}

// TCP returns a DSN that connects to a database of this server over 127.0.0.1, as the superuser with its password. It
// is empty for a server without a TCP port.
func (s *Server) TCP(database string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.cfg.TCP {
		return ""
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(Superuser, s.password),
		Host:     "127.0.0.1:" + strconv.Itoa(s.port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Socket returns the directory and the port of the Unix socket, as libpq's host and port. If the server has a TCP port,
// it is the same.
func (s *Server) Socket() (dir string, port int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.socket, s.port
}

// Dir returns the absolute path of Config.Dir.
func (s *Server) Dir() string { return s.dir }

// BinDir returns the directory of the binaries in use.
func (s *Server) BinDir() string { return s.bin.dir }

// Log returns the path of the server's log.
func (s *Server) Log() string { return filepath.Join(s.dir, "postgres.log") }

// PID returns the process id of the postmaster, the parent of all Postgres processes.
func (s *Server) PID() int { return s.current().pid() }

func (s *Server) pgdata() string { return filepath.Join(s.dir, "pgdata") }

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

func socketDSN(socket string, port int, database string) string {
	q := url.Values{"host": {socket}, "port": {strconv.Itoa(port)}, "sslmode": {"disable"}}
	return fmt.Sprintf("postgres://%s@/%s?%s", Superuser, url.PathEscape(database), q.Encode())
}

func withPatience(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, startPatience)
}
