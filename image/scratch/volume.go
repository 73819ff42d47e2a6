package scratch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// growTo is the size, in bytes, that the group tables of a volume's file system have space for: the limit to which it
// can grow while it is mounted.
const growTo = 1 << 40

// CreateVolume creates the disk of a volume at path, which must not exist, and syncs it. It is an empty ext4 of size
// bytes, rounded up to Unit, which can grow. Every user may write its top directory. CreateVolume leaves nothing if it
// fails. Errors: errSize, errNoMkfs.
//
// Volumes are few and live long. Each has an identity of its own (no template), a journal of mkfs.ext4's default size,
// and copies of its superblock. There is no lost+found: databases would take the directory for one in use.
func CreateVolume(ctx context.Context, path string, size int64) error {
	if size < 1 || size > MaxSize {
		return fmt.Errorf("%w: %d bytes (at most %d)", errSize, size, int64(MaxSize))
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create the disk of a volume: %w", err)
	}
	if err = f.Truncate(Rounded(size)); err == nil {
		err = mkfsVolume(ctx, path)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("create the disk of a volume %s: %w", path, errors.Join(err, os.Remove(path)))
	}
	return nil
}

func mkfsVolume(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, mkfsWait)
	defer cancel()
	mkfs, err := lookTool("mkfs.ext4")
	if err != nil {
		return err
	}
	out, err := run(ctx, "", mkfs, "-q", "-F", "-m", "0", "-b", "4096", "-I", "256", "-i", "16384", "-G", "128",
		"-O", "none,has_journal,extent,64bit,flex_bg,sparse_super,filetype,dir_index,dir_nlink,extra_isize,"+
			"huge_file,large_file,ext_attr,uninit_bg,resize_inode",
		"-E", "resize="+strconv.Itoa(growTo/4096)+",lazy_itable_init=1,lazy_journal_init=1,nodiscard,root_owner=0:0", path)
	if err != nil {
		return fmt.Errorf("mkfs.ext4: %w: %s", err, out)
	}
	debugfs, err := lookTool("debugfs")
	if err != nil {
		return err
	}
	// debugfs echoes its commands, adds a line for each error, and succeeds anyway.
	if out, err = run(ctx, "rmdir lost+found\nset_inode_field <2> mode 040777\n", debugfs, "-w", "-f", "/dev/stdin", path); err != nil ||
		out != "debugfs: rmdir lost+found debugfs: set_inode_field <2> mode 040777" {
		return fmt.Errorf("debugfs: %w: %s", errors.Join(err, errors.New("the top of the disk cannot be changed")), out)
	}
	return nil
}

// run runs a tool with that input, and returns its output as one line, without its version.
func run(ctx context.Context, input, tool string, args ...string) (said string, err error) {
	cmd := exec.CommandContext(ctx, tool, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "MKE2FS_CONFIG=/dev/null", "DEBUGFS_PAGER=__none__"}
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	var lines []string
	for line := range strings.Lines(out.String()) {
		if !strings.HasPrefix(line, "debugfs 1.") {
			lines = append(lines, line)
		}
	}
	return strings.Join(strings.Fields(strings.Join(lines, " ")), " "), err
}
