// Package privatepg runs a private Postgres from the server binaries that the
// machine already has: for `punctual dev` and for tests. It installs nothing.
//
// A Server lives in one directory and belongs to one process, its owner:
//
//	dir/owner.lock    held with flock by the owner; names its process id
//	dir/password      of the superuser over TCP, mode 0600
//	dir/pgdata/       the data directory, made by initdb on the first start
//	dir/run/          the Unix socket, mode 0700: who can enter it is trusted
//	dir/postgres.log  the log of this start; the one before is postgres.log.old
//
// Postgres refuses to run as root, so a root owner starts it as an unprivileged
// user of the machine and gives that user the directory.
//
// Postgres never outlives its owner. On Linux the kernel sends it SIGQUIT when
// the owner dies, however that happens; elsewhere a small watching shell does.
// That is a crash in Postgres' eyes: the next Start recovers from the log it
// wrote ahead, and nothing committed is lost (unless Config.Fast was set).
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

// startPatience bounds Start and Restart when their context has no deadline.
// It leaves room for crash recovery on a slow disk.
const startPatience = time.Minute

// Config says where a Server lives and how it runs. Only Dir is required.
type Config struct {
	// Dir is the directory for everything the server writes. It is created if
	// missing; if it exists it must be empty or come from an earlier Start.
	Dir string

	// BinDir holds postgres and initdb. Empty means what Find finds, or, for an
	// existing Dir, the binaries of the version that made it.
	BinDir string

	// Port is the TCP port on 127.0.0.1: 0 means none (Unix socket only),
	// AnyPort means a free one.
	Port int

	// Fast trades durability for speed (fsync off and the like). For tests.
	Fast bool

	// Ephemeral removes Dir when the server stops or its owner dies.
	Ephemeral bool

	// Settings override server settings, as in postgresql.conf.
	Settings map[string]string

	// Env is added to the environment of Postgres, as in exec.Cmd.Env.
	Env []string
}

// AnyPort as Config.Port asks for a free TCP port.
const AnyPort = -1

// Server is a running private Postgres. Its methods may be called from several
// goroutines.
type Server struct {
	cfg      Config
	dir      string // absolute, symbolic links resolved
	bin      installation
	user     account
	password string
	lock     *os.File

	life   sync.Mutex // held through Stop, Crash and Restart
	closed bool       // guarded by life

	mu      sync.Mutex // guards what a Restart replaces
	socket  string     // the socket's directory
	port    int
	process *process
}

// Start starts Postgres in cfg.Dir, creating the database cluster the first
// time, and returns when it accepts connections. A second owner of the same
// directory gets an *InUseError, a machine without Postgres a *NotFoundError.
//
// ctx bounds the start alone (a minute at most if it has no deadline). The
// server runs until Stop, or until this process ends.
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

// open takes the directory without starting anything in it.
func open(cfg Config) (s *Server, err error) {
	dir, existed, err := makeDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil && !existed {
			_ = os.Remove(dir) // no more than tidy, and only if empty
		}
	}()
	s = &Server{cfg: cfg, dir: dir}
	if s.user, err = chooseAccount(s.pgdata()); err != nil {
		return nil, err
	}
	if s.bin, err = chooseBinaries(cfg.BinDir, s.pgdata()); err != nil {
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

// boot brings the directory into shape and Postgres up.
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

// DSN connects to a database of this server over its Unix socket, as the
// superuser. Only this user and root can reach the socket.
func (s *Server) DSN(database string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return socketDSN(s.socket, s.port, database)
}

// TCP connects to a database of this server over 127.0.0.1, as the superuser
// with its password. It is empty for a server without a TCP port.
func (s *Server) TCP(database string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Port == 0 {
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

// Socket returns the directory and the port that name the Unix socket, as
// libpq's host and port. The port is also the TCP port if there is one.
func (s *Server) Socket() (dir string, port int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.socket, s.port
}

// Dir is the absolute path of Config.Dir.
func (s *Server) Dir() string { return s.dir }

// BinDir is where the binaries in use are.
func (s *Server) BinDir() string { return s.bin.dir }

// Version is the major version of Postgres, 15 or more.
func (s *Server) Version() int { return s.bin.version }

// Log is the path of the server's log.
func (s *Server) Log() string { return filepath.Join(s.dir, "postgres.log") }

// PID is the process id of the postmaster, the parent of all of Postgres.
func (s *Server) PID() int { return s.current().pid() }

// Done is closed when Postgres has ended, by Stop or by accident. A Restart
// begins a new life with a new channel.
func (s *Server) Done() <-chan struct{} { return s.current().done }

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
