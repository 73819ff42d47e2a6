// Package scratch creates the writable disks of pods: sparse files of the size of their ext4, which is the size that
// the pod may write. mkfs.ext4 runs once per size. A disk is then a copy of the few blocks that it wrote.
package scratch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/api/slot"
	"github.com/bulkhead-project/bulkhead/internal/flock"
)

// The sizes that a disk may have, in bytes.
const (
	MinSize = 64 << 20
	MaxSize = slot.Size
	// Unit is the unit that sizes are rounded up to.
	Unit = 1 << 20
)

var (
	// errSize is returned for a size that no disk may have.
	errSize = errors.New("impossible size of a scratch disk")
	// errNoMkfs is returned if mkfs.ext4 (package e2fsprogs) is missing.
	errNoMkfs = errors.New("mkfs.ext4 not found: install e2fsprogs")
)

// version is part of a template's name. Change it with the arguments of mkfs.
const version = "3"

// journalSize is the size of ext4's smallest journal, in bytes.
const journalSize = 4 << 20

// mkfsWait bounds one run of mkfs.ext4 and the wait for another process's.
const mkfsWait = 30 * time.Second

// Maker creates scratch disks. It is safe for concurrent use, also by several processes.
type Maker struct {
	// Templates is the directory of empty file systems, which must exist.
	Templates string
}

// Create creates a disk at path, which must not exist, with a file system of size bytes, rounded up to Unit. It leaves
// nothing if it fails. Errors: errSize, errNoMkfs.
func (m Maker) Create(ctx context.Context, path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create scratch disk: %w", err)
	}
	if err := errors.Join(m.fill(ctx, f, size), f.Close()); err != nil {
		return fmt.Errorf("create scratch disk %s: %w", path, errors.Join(err, os.Remove(path)))
	}
	return nil
}

// Copy creates a disk at path, which must not exist, with the content of another one, which must not change meanwhile.
// It leaves nothing if it fails.
func Copy(path string, from *os.File) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("copy a scratch disk: %w", err)
	}
	if err := errors.Join(copySparse(f, from), f.Close()); err != nil {
		return fmt.Errorf("copy a scratch disk to %s: %w", path, errors.Join(err, os.Remove(path)))
	}
	return nil
}

// Rounded returns the length of the disk for size bytes.
func Rounded(size int64) int64 { return max(MinSize, (size+Unit-1)/Unit*Unit) }

func (m Maker) fill(ctx context.Context, f *os.File, size int64) error {
	if size < 1 || size > MaxSize {
		return fmt.Errorf("%w: %d bytes (at most %d)", errSize, size, int64(MaxSize))
	}
	size = Rounded(size)
	template, err := m.template(ctx, size)
	if err != nil {
		return err
	}
	defer template.Close()
	return copySparse(f, template)
}

// template returns the empty file system of a size, and creates it if it is missing.
func (m Maker) template(ctx context.Context, size int64) (*os.File, error) {
	path := filepath.Join(m.Templates, fmt.Sprintf("scratch-%dm-%s.img", size/Unit, version))
	f, err := os.Open(path)
	if !errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	ctx, cancel := context.WithTimeout(ctx, mkfsWait)
	defer cancel()
	lock, err := flock.Acquire(ctx, filepath.Join(m.Templates, "scratch.lock"))
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	if f, err := os.Open(path); !errors.Is(err, os.ErrNotExist) {
		return f, err // another process made it meanwhile
	}
	// The name is fixed, so that the file of a killed process is overwritten.
	tmp := filepath.Join(m.Templates, ".scratch.tmp")
	if err := mkfs(ctx, tmp, size); err != nil {
		return nil, errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// mkfs creates an empty ext4 of size bytes in path. The disk may outlive a crash of its VM, so it has a journal, the
// smallest one. Tables and journal are written on first use, root has no reserve, and the features are those of the
// oldest kernel a guest may have. Project quotas bound the volumes with a limit.
func mkfs(ctx context.Context, path string, size int64) error {
	tool, err := lookTool("mkfs.ext4")
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, tool, "-q", "-F", "-m", "0", "-b", "4096", "-I", "256",
		"-O", "none,has_journal,extent,64bit,flex_bg,sparse_super2,filetype,dir_index,dir_nlink,extra_isize,"+
			"huge_file,large_file,ext_attr,uninit_bg,quota,project",
		"-E", "quotatype=prjquota,lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0,num_backup_sb=0", "-G", "128",
		"-J", fmt.Sprintf("size=%d", journalSize>>20), "-L", "scratch", "-N", strconv.FormatInt(inodes(size), 10), path)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "MKE2FS_CONFIG=/dev/null"}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, strings.Join(strings.Fields(string(out)), " "))
	}
	return f.Sync()
}

// inodes returns the most files of a disk: one for every 16 KiB, at most four million.
func inodes(size int64) int64 { return min(max(size>>14, 1024), 4<<20) }

// lookTool finds a program of e2fsprogs, which is often missing from an ordinary user's PATH. Error: errNoMkfs.
func lookTool(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", errNoMkfs
}
