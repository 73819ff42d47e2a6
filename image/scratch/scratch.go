// Package scratch makes the writable disks of pods: sparse files as long as the
// ext4 in them, which is what the pod may write. mkfs.ext4 runs once a size; after
// that a disk is a copy of the few blocks it wrote.
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
	// Unit is what sizes are rounded up to.
	Unit = 1 << 20
)

var (
	// ErrSize is returned for a size that no disk may have.
	ErrSize = errors.New("impossible size of a scratch disk")
	// ErrNoMkfs is returned where mkfs.ext4 (package e2fsprogs) is missing.
	ErrNoMkfs = errors.New("mkfs.ext4 not found: install e2fsprogs")
)

// version is part of a template's name: another mkfs line is another version.
const version = "3"

// journalSize is that of the smallest journal that ext4 has, in bytes.
const journalSize = 4 << 20

// mkfsWait bounds one run of mkfs.ext4 and the wait for another process's.
const mkfsWait = 30 * time.Second

// Maker makes scratch disks. It may be used by several goroutines, and
// several processes, at once.
type Maker struct {
	// Templates is the directory of empty file systems, which must exist.
	Templates string
}

// Create makes a disk at path, which must not exist, with a file system of
// size bytes, rounded up to Unit. Nothing is left if it fails. ErrSize,
// ErrNoMkfs.
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

// Copy makes a disk at path, which must not exist, with the content of another one, which
// nobody writes meanwhile. Nothing is left if it fails.
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

// Rounded is the length of the disk that is made for size bytes.
func Rounded(size int64) int64 { return max(MinSize, (size+Unit-1)/Unit*Unit) }

func (m Maker) fill(ctx context.Context, f *os.File, size int64) error {
	if size < 1 || size > MaxSize {
		return fmt.Errorf("%w: %d bytes (at most %d)", ErrSize, size, int64(MaxSize))
	}
	size = Rounded(size)
	template, err := m.template(ctx, size)
	if err != nil {
		return err
	}
	defer template.Close()
	return copySparse(f, template)
}

// template returns the empty file system of a size, made if it is missing.
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
	// The name is fixed, so that what a killed process left is written over.
	tmp := filepath.Join(m.Templates, ".scratch.tmp")
	if err := mkfs(ctx, tmp, size); err != nil {
		return nil, errors.Join(err, os.Remove(tmp))
	}
	if err := os.Rename(tmp, path); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// mkfs makes an empty ext4 of size bytes in path. The disk may outlive a crash of
// the VM that writes it, so there is a journal, the smallest. Tables and journal
// are written when they are first needed, nothing is reserved for root, and
// features are of the oldest kernel a guest may have. Quotas of projects bound
// the volumes that have a limit.
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

// inodes is how many files a disk can have: one for every 16 KiB, at most
// four million.
func inodes(size int64) int64 { return min(max(size>>14, 1024), 4<<20) }

// lookTool finds a program of e2fsprogs, which an ordinary user's PATH often has not: ErrNoMkfs.
func lookTool(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if path := filepath.Join(dir, name); unix.Access(path, unix.X_OK) == nil {
			return path, nil
		}
	}
	return "", ErrNoMkfs
}
