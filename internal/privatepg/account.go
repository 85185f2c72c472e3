package privatepg

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
)

// account is the user that Postgres runs as. demoted is false if that is the user of this process.
type account struct {
	name     string
	uid, gid int
	demoted  bool
}

// unprivileged lists the users that Postgres can run as when the owner is root, best first.
var unprivileged = []string{"postgres", "_postgres", "pgsql", "nobody"}

// chooseAccount chooses the user that Postgres runs as. That is this user. Postgres refuses to run as root, so for root
// it is the owner of the existing pgdata, or else an unprivileged user.
func chooseAccount(pgdata string) (account, error) {
	if os.Geteuid() != 0 {
		return account{name: "this user", uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	if info, err := os.Stat(pgdata); err == nil {
		if uid, gid := owner(info); uid != 0 {
			return account{name: userName(uid), uid: uid, gid: gid, demoted: true}, nil
		}
	}
	for _, name := range unprivileged {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err := errors.Join(err1, err2); err == nil && uid != 0 {
			return account{name: name, uid: uid, gid: gid, demoted: true}, nil
		}
	}
	return account{}, fmt.Errorf("postgres refuses to run as root, and there is none of the users %v to run it as",
		unprivileged)
}

// own makes the account the owner of paths.
func (a account) own(paths ...string) error {
	if !a.demoted {
		return nil
	}
	for _, p := range paths {
		if err := os.Chown(p, a.uid, a.gid); err != nil {
			return fmt.Errorf("give the directory to user %s: %w", a.name, err)
		}
	}
	return nil
}

func userName(uid int) string {
	if u, err := user.LookupId(strconv.Itoa(uid)); err == nil {
		return u.Username
	}
	return "uid " + strconv.Itoa(uid)
}
