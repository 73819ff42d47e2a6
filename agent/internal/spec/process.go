package spec

import (
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Users opens the image's user database.
type Users interface {
	// ReadFile reads at most limit bytes of a file in the image; a missing file is empty.
	ReadFile(path string, limit int) ([]byte, error)
}

// Named is a user that was looked up before, with its name.
type Named struct {
	Name string
	Is   *agentv1.User
}

// Guest is the guest's data for a process.
type Guest struct {
	Users Users
	// Known is a user with fixed ids, even if the container has changed its /etc/passwd since.
	Known    Named
	Hostname string
	// Verbatim leaves the user, the directory and the environment as they are, except for a missing HOME, which every
	// runtime sets.
	Verbatim bool
	// Rlimits are the limits of a process that names none, if it is verbatim.
	Rlimits json.RawMessage
}

// Process converts the host's OCI process for the guest: it looks up the user, sets HOME and HOSTNAME, and removes
// labels that the guest's kernel does not support.
func Process(raw json.RawMessage, guest Guest, terminal bool) (json.RawMessage, error) {
	var p object
	if err := json.Unmarshal(raw, &p); err != nil {
		return nil, fmt.Errorf("process: %w: %w", errdefs.ErrInvalidArgument, err)
	}
	var args, env []string
	var user object
	var cwd string
	for _, err := range []error{p.get("args", &args), p.get("env", &env), p.get("user", &user), p.get("cwd", &cwd)} {
		if err != nil {
			return nil, fmt.Errorf("process: %w", err)
		}
	}
	if len(args) == 0 || args[0] == "" {
		return nil, fmt.Errorf("process has no command: %w", agentv1.ErrNoCommand)
	}
	if guest.Verbatim {
		return verbatim(p, user, args, env, cwd, guest, terminal)
	}
	if cwd == "" {
		cwd = "/"
	}
	home, err := resolveUser(&user, guest, has(env, "HOME"))
	if err != nil {
		return nil, err
	}
	if home != "" {
		env = append(env, "HOME="+home)
	}
	if guest.Hostname != "" && !has(env, "HOSTNAME") {
		env = append(env, "HOSTNAME="+guest.Hostname)
	}
	p.removeLabels()
	for key, v := range map[string]any{"env": env, "user": user, "cwd": cwd, "terminal": terminal} {
		if err := p.set(key, v); err != nil {
			return nil, err
		}
	}
	return json.Marshal(p)
}

// removeLabels removes the labels that the guest's kernel does not support.
func (o object) removeLabels() {
	delete(o, "apparmorProfile")
	delete(o, "selinuxLabel")
}

// verbatim checks a process and changes only its labels, its terminal, missing limits, a missing HOME, and the user's
// name, which OCI has for Windows.
func verbatim(p, user object, args, env []string, cwd string, guest Guest, terminal bool) (json.RawMessage, error) {
	if !path.IsAbs(cwd) {
		return nil, fmt.Errorf("process.cwd %.128q must be an absolute path: %w", cwd, errdefs.ErrInvalidArgument)
	}
	if slices.ContainsFunc(slices.Concat(args, env), func(s string) bool { return strings.Contains(s, "\x00") }) {
		return nil, fmt.Errorf("process.args or process.env: a NUL byte: %w", errdefs.ErrInvalidArgument)
	}
	for _, variable := range env {
		if strings.IndexByte(variable, '=') <= 0 {
			return nil, fmt.Errorf("process.env: %.64q must be NAME=VALUE: %w", variable, errdefs.ErrInvalidArgument)
		}
	}
	var uid uint32
	if err := user.get("uid", &uid); err != nil {
		return nil, fmt.Errorf("process.user: %w", err)
	}
	if !has(env, "HOME") || slices.Contains(env, "HOME=") {
		db, err := loadUsers(guest.Users)
		if err != nil {
			return nil, err
		}
		if err := p.set("env", append(env, "HOME="+db.home(uid))); err != nil {
			return nil, err
		}
	}
	if user != nil {
		delete(user, "username")
		if err := p.set("user", user); err != nil {
			return nil, err
		}
	}
	var rlimits []json.RawMessage
	if err := p.get("rlimits", &rlimits); err != nil {
		return nil, fmt.Errorf("process: %w", err)
	}
	if len(rlimits) == 0 && guest.Rlimits != nil {
		p["rlimits"] = guest.Rlimits
	}
	p.removeLabels()
	if err := p.set("terminal", terminal); err != nil {
		return nil, err
	}
	return json.Marshal(p)
}

func has(env []string, key string) bool {
	return slices.ContainsFunc(env, func(s string) bool { return strings.HasPrefix(s, key+"=") })
}

// resolveUser replaces the username by ids, and returns the home directory to set.
func resolveUser(user *object, guest Guest, hasHome bool) (home string, err error) {
	if *user == nil {
		*user = object{}
	}
	var name string
	var uid, gid uint32
	var groups []uint32
	for _, err := range []error{
		user.get("username", &name),
		user.get("uid", &uid),
		user.get("gid", &gid),
		user.get("additionalGids", &groups),
	} {
		if err != nil {
			return "", fmt.Errorf("process: user: %w", err)
		}
	}
	if name == "" && hasHome {
		return "", nil
	}
	db, err := loadUsers(guest.Users)
	if err != nil {
		return "", err
	}
	if name == "" {
		return db.home(uid), nil
	}
	var who account
	if known := guest.Known; known.Is != nil && name == known.Name {
		who = account{uid: known.Is.UID, gid: known.Is.GID, groups: slices.Clone(known.Is.Groups), home: db.home(known.Is.UID)}
	} else if who, err = db.lookup(name); err != nil {
		return "", err
	}
	delete(*user, "username")
	for _, g := range groups {
		if !slices.Contains(who.groups, g) {
			who.groups = append(who.groups, g)
		}
	}
	for key, v := range map[string]any{"uid": who.uid, "gid": who.gid, "additionalGids": who.groups} {
		if err := user.set(key, v); err != nil {
			return "", err
		}
	}
	if hasHome {
		return "", nil
	}
	return who.home, nil
}
