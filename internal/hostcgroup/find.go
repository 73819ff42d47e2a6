package hostcgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// view is a process's view of its cgroups; tests have others.
type view struct {
	own    string // as /proc/self/cgroup
	mounts string // as /proc/self/mountinfo
}

var system = view{"/proc/self/cgroup", "/proc/self/mountinfo"}

// hierarchy is a mounted hierarchy and this process's place in it.
type hierarchy struct {
	mount string // the directory
	own   string // below it, "/" at its top
}

func find(v view, tag string) *Host {
	h := &Host{tag: tag, parents: map[string]string{}, mounts: map[string]string{}}
	all, err := v.hierarchies()
	if err != nil {
		h.support.Missing = err.Error()
		return h
	}
	var reasons []string
	for _, c := range controllers {
		old, ok := all[c]
		if !ok {
			continue
		}
		dir := filepath.Join(old.mount, old.own)
		if err := unix.Access(dir, unix.W_OK); err != nil {
			reasons = append(reasons, fmt.Sprintf("%s: %v", dir, err))
			continue
		}
		h.parents[c], h.mounts[c] = dir, old.mount
		h.support.Version, h.support.Controllers = 1, append(h.support.Controllers, c)
	}
	if h.support.Version == 1 {
		counts, ok := all[accounting]
		if dir := filepath.Join(counts.mount, counts.own); ok && unix.Access(dir, unix.W_OK) == nil {
			h.parents[accounting], h.mounts[accounting] = dir, counts.mount
		}
	}
	unified, ok := all[""]
	if h.support.Version == 0 && len(reasons) == 0 && ok {
		reasons = h.beside(unified)
	}
	switch {
	case len(reasons) > 0:
		h.support.Missing = strings.Join(reasons, "; ")
	case len(all) == 0:
		h.support.Missing = "no cgroups are mounted"
	case len(h.support.Controllers) == 0:
		h.support.Missing = "no controller of memory, cpu or pids"
	case len(h.support.Controllers) < len(controllers):
		h.support.Missing = "no controller of " + strings.Join(slices.DeleteFunc(slices.Clone(controllers), h.support.Has), ", ")
	}
	return h
}

// beside uses the nearest place with all controllers that this process may use and that has no other processes. If
// there is none, it uses the nearest of those with the most controllers. If there is none at all, it returns the
// reasons.
func (h *Host) beside(u hierarchy) []string {
	var reasons []string
	if !intoCgroup() {
		return []string{"starting processes in a cgroup needs Linux 5.7 or later"}
	}
	own := u.own
	if own != "/" {
		own = filepath.Dir(own)
	}
	for {
		parent := filepath.Join(u.mount, own)
		got, err := prepare(parent, h.tag)
		worse := parent
		if err != nil {
			reasons = append(reasons, err.Error())
		} else if len(got) > len(h.support.Controllers) {
			worse = h.parents[""]
			h.support.Version, h.support.Controllers = 2, got
			h.parents[""], h.mounts[""] = parent, u.mount
		}
		if worse != "" && err == nil {
			_ = os.Remove(filepath.Join(worse, h.tag)) // fails while an earlier engine's pods are in it
		}
		if own == "/" || len(h.support.Controllers) == len(controllers) {
			break
		}
		own = filepath.Dir(own)
	}
	if h.support.Version != 0 {
		return nil
	}
	return reasons
}

// prepare creates the owner's directory in a group of cgroup2, with the controllers that groups in it can have.
func prepare(parent, tag string) ([]string, error) {
	// Moving a process needs write access here, not only in the directory itself.
	for _, name := range []string{"", "cgroup.procs", "cgroup.subtree_control"} {
		path := filepath.Join(parent, name)
		if err := unix.Access(path, unix.W_OK); err != nil {
			return nil, fmt.Errorf("%s is not delegated to this user (%w)", parent, err)
		}
	}
	if err := enable(parent); err != nil {
		return nil, err
	}
	dir := filepath.Join(parent, tag)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err := enable(dir); err != nil {
		return nil, err
	}
	return splitFields(filepath.Join(dir, "cgroup.subtree_control"))
}

// enable gives groups in dir the controllers of dir.
func enable(dir string) error {
	have, err := splitFields(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	on, err := splitFields(filepath.Join(dir, "cgroup.subtree_control"))
	if err != nil {
		return err
	}
	for _, c := range controllers {
		if !slices.Contains(have, c) || slices.Contains(on, c) {
			continue
		}
		err := write(dir, "cgroup.subtree_control", "+"+c)
		if errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("%s has processes of its own, so groups in it cannot have limits", dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func splitFields(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	var known []string
	for w := range strings.FieldsSeq(string(data)) {
		if slices.Contains(controllers, w) {
			known = append(known, w)
		}
	}
	return known, err
}

// hierarchies returns the older controllers' hierarchies by their names, and cgroup2 by "".
func (v view) hierarchies() (map[string]hierarchy, error) {
	own, err := v.ownPaths()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(v.mounts)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all := map[string]hierarchy{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		left, right, _ := strings.Cut(lines.Text(), " - ")
		at, what := strings.Fields(left), strings.Fields(right)
		if len(at) < 5 || len(what) < 3 {
			continue
		}
		names := []string{""}
		switch what[0] {
		case "cgroup":
			names = strings.Split(what[2], ",")
		case "cgroup2":
		default:
			continue
		}
		for _, name := range names {
			path, ok := own[name]
			if !ok {
				continue
			}
			// A mount may show only a part of the hierarchy.
			below, inside := within(at[3], path)
			if _, seen := all[name]; inside && !seen {
				all[name] = hierarchy{mount: unescape(at[4]), own: below}
			}
		}
	}
	return all, nil
}

// ownPaths returns this process's group by controller, and by "" for cgroup2.
func (v view) ownPaths() (map[string]string, error) {
	data, err := os.ReadFile(v.own)
	if err != nil {
		return nil, err
	}
	own := map[string]string{}
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		for name := range strings.SplitSeq(parts[1], ",") {
			own[name] = parts[2]
		}
	}
	return own, nil
}

// within returns path relative to root.
func within(root, path string) (string, bool) {
	rel, err := filepath.Rel(root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", false
	}
	return filepath.Join("/", rel), true
}

// unescape undoes mountinfo's escapes of special characters.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// intoCgroup reports whether the kernel has CLONE_INTO_CGROUP.
func intoCgroup() bool {
	var name unix.Utsname
	var major, minor int
	if unix.Uname(&name) != nil {
		return false
	}
	_, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	return err == nil && (major > 5 || major == 5 && minor >= 7)
}
