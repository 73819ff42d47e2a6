package shares

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/engine/failure"
)

// kernels are the file systems of the kernel's own doings, by their names. A pod has those of
// its own kernel.
var kernels = []string{
	"proc", "sysfs", "cgroup", "cgroup2", "devtmpfs", "devpts", "debugfs", "tracefs", "securityfs", "bpf", "pstore", "efivarfs",
	"configfs", "fusectl", "mqueue", "binfmt_misc", "rpc_pipefs", "selinuxfs", "nsfs", "autofs",
}

// place is a directory or file of the host that may be shared.
type place struct {
	*os.File // O_PATH
	// path is where it is, without links.
	path string
	// masks are the directories below it that are not shared.
	masks []string
}

// make makes a directory that is missing, as runtimes of containers do, unless it would be
// Bulkhead's own. What is wrong with the path, open says.
func (h Host) make(path string) {
	if slices.ContainsFunc(h.Own, func(own string) bool { return within(own, filepath.Clean(path)) }) || !filepath.IsAbs(path) {
		return
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		_ = os.MkdirAll(path, 0o755)
	}
}

// open opens what path names, links followed, or a part of that, from which no link leads,
// if pods may have it. The directories of a part that are missing are made.
func (h Host) open(path, part string) (p *place, err error) {
	if !filepath.IsAbs(path) {
		return nil, failure.Invalid("host path %.200q is not absolute", path)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &failure.Error{Code: codeOf(err), Text: fmt.Sprintf("host path %.200q", path), Err: err}
	}
	if part != "" {
		base := fd
		fd, err = openPart(base, part)
		_ = unix.Close(base)
		if err != nil {
			return nil, &failure.Error{Code: codes.InvalidArgument, Text: fmt.Sprintf("part %.200q of host path %.200q", part, path), Err: err}
		}
	}
	p = &place{File: os.NewFile(uintptr(fd), path)}
	if err := h.judge(p, path); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// reopen opens a place again by its path. A link that has come into it since, which whoever has
// a directory above it can put there, is not followed.
func (h Host) reopen(path string) (*place, error) {
	p, err := h.open(path, "")
	if err != nil {
		return nil, err
	}
	if p.path != path {
		p.Close()
		return nil, failure.New(codes.PermissionDenied, "host path %.200q leads to %.200q now", path, p.path)
	}
	return p, nil
}

// openPart opens a part of a directory, step by step: whoever else has the directory may
// change it meanwhile.
func openPart(dir int, part string) (int, error) {
	if !filepath.IsLocal(part) {
		return -1, errors.New("it leaves the directory")
	}
	fd := -1
	names := strings.Split(filepath.Clean(part), "/")
	for i := range names {
		parent := fd
		var err error
		fd, err = stepInto(dir, parent, names[:i+1])
		if parent >= 0 {
			_ = unix.Close(parent)
		}
		if err != nil {
			return -1, err
		}
	}
	return fd, nil
}

// stepInto opens what the names lead to from dir, whose last one it makes in parent if it is
// missing.
func stepInto(dir, parent int, names []string) (int, error) {
	how := &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS}
	path := strings.Join(names, "/")
	fd, err := unix.Openat2(dir, path, how)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if parent < 0 {
		parent = dir
	}
	if err := unix.Mkdirat(parent, names[len(names)-1], 0o755); err != nil && !errors.Is(err, unix.EEXIST) {
		return -1, err
	}
	return unix.Openat2(dir, path, how)
}

// judge finds out where a place is, and refuses what no pod gets.
func (h Host) judge(p *place, path string) (err error) {
	fd := int(p.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("host path %.200q: %w", path, err)
	}
	if kind := st.Mode & unix.S_IFMT; kind != unix.S_IFDIR && kind != unix.S_IFREG {
		return failure.New(codes.Unimplemented, "host path %.200q is %s: a pod can have directories and regular files of the host",
			path, kindName(kind))
	}
	if p.path, err = os.Readlink("/proc/self/fd/" + strconv.Itoa(fd)); err != nil {
		return fmt.Errorf("host path %.200q: %w", path, err)
	}
	mounts, err := kernelMounts()
	if err != nil {
		return err
	}
	own := h.own()
	for _, hidden := range slices.Concat(own, mounts) {
		switch below, ok := beneath(p.path, hidden); {
		case ok:
			p.masks = append(p.masks, below)
		case within(hidden, p.path) && slices.Contains(own, hidden):
			return failure.New(codes.PermissionDenied, "host path %.200q lies in %s, which is Bulkhead's own", path, hidden)
		case within(hidden, p.path):
			return failure.New(codes.Unimplemented, "host path %.200q is of the host's kernel: a pod has a kernel of its own", path)
		}
	}
	return nil
}

// own are Bulkhead's directories where they really are. One that is not there yet is where it
// would be.
func (h Host) own() []string {
	dirs := slices.Clone(h.Own)
	for i, dir := range dirs {
		if at, err := filepath.EvalSymlinks(dir); err == nil {
			dirs[i] = at
		}
	}
	return dirs
}

func codeOf(err error) codes.Code {
	switch {
	case errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR):
		return codes.NotFound
	case errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM):
		return codes.PermissionDenied
	case errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENAMETOOLONG):
		return codes.InvalidArgument
	}
	return codes.Internal
}

func kindName(kind uint32) string {
	switch kind {
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFIFO:
		return "a FIFO"
	}
	return "a device"
}

// beneath is where path lies strictly below dir.
func beneath(dir, path string) (string, bool) {
	below, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, "/")+"/")
	return below, ok && below != ""
}

// within tells whether path is dir or lies below it.
func within(dir, path string) bool {
	_, below := beneath(dir, path)
	return below || dir == path
}

// kernelMounts are where the kernel's own file systems are mounted. The outermost ones come
// first.
func kernelMounts() (dirs []string, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		at := slices.Index(fields, "-")
		if at < 6 || at+1 >= len(fields) || !slices.Contains(kernels, fields[at+1]) {
			continue
		}
		if dir := unescape(fields[4]); !slices.ContainsFunc(dirs, func(outer string) bool { return within(outer, dir) }) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, lines.Err()
}

// unescape undoes how the kernel writes a path: spaces and the like by three octal digits.
func unescape(path string) string {
	for i := 0; i+3 < len(path); i++ {
		if path[i] != '\\' {
			continue
		}
		if n, err := strconv.ParseUint(path[i+1:i+4], 8, 8); err == nil {
			path = path[:i] + string([]byte{byte(n)}) + path[i+4:]
		}
	}
	return path
}
