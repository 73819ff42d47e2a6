package erofs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	reader "github.com/erofs/go-erofs"
	"golang.org/x/sys/unix"
)

// TestOneBound: a disk holds all its files or is refused, and never takes more of the host's disk than its limit,
// before and after Finish.
func TestOneBound(t *testing.T) {
	const limit = 1 << 20
	var made, refused int
	for _, size := range []int{1, 100, 2000, maxInline, maxInline + 1, 50000} {
		for count := 1; count < 20000; count += count/4 + 1 {
			f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
			if err != nil {
				t.Fatal(err)
			}
			err = fill(f, limit, size, count)
			if took := taken(t, f); took > limit {
				t.Fatalf("%d files of %d bytes take %d", count, size, took)
			}
			if err == nil {
				made++
				check(t, f, size, count)
			}
			f.Close()
			if errors.Is(err, ErrTooLarge) {
				refused++
				break
			}
			if err != nil {
				t.Fatalf("%d files of %d bytes: %v", count, size, err)
			}
		}
	}
	if made < 20 || refused != 6 {
		t.Errorf("%d disks were made and %d refused", made, refused)
	}
}

// content returns the content of the file with a number.
func content(number, size int) []byte {
	return bytes.Repeat([]byte(fmt.Sprintf("%08d", number)), size/8+1)[:size]
}

func fill(f *os.File, limit int64, size, count int) error {
	w := NewWriter(f, limit)
	root := NewDir(0o755)
	for i := range count {
		data, err := w.Store(bytes.NewReader(content(i, size)), int64(size))
		if err != nil {
			return err
		}
		root.Entries[fmt.Sprint(i)] = &Entry{Inode: &Inode{Mode: unix.S_IFREG | 0o644, Data: data}}
	}
	_, err := w.Finish(root)
	return err
}

// taken returns a file's disk usage on the host.
func taken(t *testing.T, f *os.File) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return st.Blocks * 512
}

func check(t *testing.T, f *os.File, size, count int) {
	t.Helper()
	files, err := reader.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	for i := range count {
		if got, err := fs.ReadFile(files, fmt.Sprint(i)); err != nil || !bytes.Equal(got, content(i, size)) {
			t.Fatalf("file %d of %d of %d bytes: %.20q, %v", i, count, size, got, err)
		}
	}
}
