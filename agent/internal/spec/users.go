package spec

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// maxDatabase bounds the size of /etc/passwd and /etc/group, which come from the image.
const maxDatabase = 1 << 20

type account struct {
	name     string
	uid, gid uint32
	home     string
	groups   []uint32
}

type group struct {
	name    string
	gid     uint32
	members []string
}

type database struct {
	accounts []account
	groups   []group
}

func loadUsers(users Users) (*database, error) {
	passwd, err := users.ReadFile("/etc/passwd", maxDatabase)
	if err != nil {
		return nil, fmt.Errorf("read the image's /etc/passwd: %w", err)
	}
	groups, err := users.ReadFile("/etc/group", maxDatabase)
	if err != nil {
		return nil, fmt.Errorf("read the image's /etc/group: %w", err)
	}
	return parseUsers(string(passwd), string(groups)), nil
}

// parseUsers skips malformed lines, like the C library.
func parseUsers(passwd, groups string) *database {
	db := &database{}
	for line := range strings.Lines(passwd) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 6 {
			continue
		}
		uid, ok1, _ := containerv1.ParseID(f[2])
		gid, ok2, _ := containerv1.ParseID(f[3])
		if f[0] != "" && ok1 && ok2 {
			db.accounts = append(db.accounts, account{name: f[0], uid: uid, gid: gid, home: f[5]})
		}
	}
	for line := range strings.Lines(groups) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 4 {
			continue
		}
		if gid, ok, _ := containerv1.ParseID(f[2]); ok {
			db.groups = append(db.groups, group{name: f[0], gid: gid, members: strings.Split(f[3], ",")})
		}
	}
	return db
}

// home returns a user's home directory, or / for an unknown user.
func (db *database) home(uid uint32) string {
	for _, a := range db.accounts {
		if a.uid == uid && a.home != "" {
			return a.home
		}
	}
	return "/"
}

// lookup parses "user", "user:group" and ":group" (user root). Decimal digits are a number, which need not be in the
// database. A user also has its groups of the database, unless the third part is agentv1.StrictGroups.
func (db *database) lookup(name string) (account, error) {
	parts := strings.Split(name, ":")
	if len(parts) > 3 || len(parts) == 3 && parts[2] != agentv1.StrictGroups {
		return account{}, fmt.Errorf("user %.64q: %w", name, errdefs.ErrInvalidArgument)
	}
	user := cmp.Or(parts[0], "0")
	uid, number, err := containerv1.ParseID(user)
	if err != nil {
		return account{}, Refused(err)
	}
	who := account{uid: uid}
	known := slices.IndexFunc(db.accounts, func(a account) bool {
		return number && a.uid == uid || !number && a.name == user
	})
	switch {
	case known >= 0:
		who = db.accounts[known]
	case !number:
		return account{}, fmt.Errorf("user %.64q is not in the image's /etc/passwd: %w", user, errdefs.ErrInvalidArgument)
	}
	who.home = cmp.Or(who.home, "/")
	if len(parts) > 1 && parts[1] != "" {
		if who.gid, err = db.group(parts[1]); err != nil {
			return who, err
		}
	}
	// Include the first group in the supplementary ones: a file that denies access to the group must stay denied after
	// setgid.
	who.groups = []uint32{who.gid}
	if known < 0 || len(parts) == 3 {
		return who, nil
	}
	for _, g := range db.groups {
		if g.gid != who.gid && slices.Contains(g.members, who.name) {
			who.groups = append(who.groups, g.gid)
		}
	}
	return who, nil
}

func (db *database) group(name string) (uint32, error) {
	gid, number, err := containerv1.ParseID(name)
	if err != nil {
		return 0, Refused(err)
	}
	if number {
		return gid, nil
	}
	for _, g := range db.groups {
		if g.name == name {
			return g.gid, nil
		}
	}
	return 0, fmt.Errorf("group %.64q is not in the image's /etc/group: %w", name, errdefs.ErrInvalidArgument)
}
