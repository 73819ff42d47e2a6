package e2e

import (
	"crypto/md5" //nolint:gosec // the guest's shell has it
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSharedData: a pod reads correct data from a directory of the host, for files of every size and several
// concurrent readers. While servers are killed, reads may fail.
func TestSharedData(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := t.TempDir()
	want := map[string]string{}
	for _, size := range []int{0, 1, 4097, 24 << 10, 64<<10 - 1, 64 << 10, 128<<10 + 7, 1<<20 - 1, 1 << 20, 1<<20 + 1, 3<<20 + 12_345} {
		want[strconv.Itoa(size)] = dataFile(t, filepath.Join(dir, strconv.Itoa(size)), size, 0)
	}
	want["sparse"] = dataFile(t, filepath.Join(dir, "sparse"), 300<<10+1, 2<<20)
	w.must(t, "", "run", "-d", "-q", "--name", "reader", "-v", dir+":/kept:ro", "-v", dir+":/asked:ro,cache=none", image, "sleep", "1000")
	judge := func(said string) (right int) {
		for line := range strings.Lines(said) {
			sum, path, _ := strings.Cut(strings.TrimSpace(line), "  ")
			if want[filepath.Base(path)] != sum {
				t.Errorf("%q is read wrongly", line)
				continue
			}
			right++
		}
		return right
	}
	const readers = 3
	each := `f() { for i in /$1/*; do dd if=$i bs=$2 2>/dev/null >/tmp/$3 && echo "$(md5sum </tmp/$3 | cut -c1-32)  $i"; done; };`
	said := w.must(t, "", "exec", "reader", "--", "sh", "-c", each+"f kept 1M a & f kept 100k b & f asked 1M c & wait")
	if n := judge(said); n != readers*len(want) {
		t.Errorf("%d of %d files were read", n, readers*len(want))
	}
	if used := ringUsed(t, w); used < 1<<20 {
		t.Errorf("%d bytes of the memory for large answers are in use", used)
	}
	again := each + "n=0; while [ $n -lt 6 ]; do f asked 1M a & f asked 300k b & wait; n=$((n+1)); done"
	c := w.start(t, "", "exec", "reader", "--", "sh", "-c", again)
	for range 4 {
		time.Sleep(time.Duration(200+rand.IntN(400)) * time.Millisecond)
		for _, pid := range shareServers(w) {
			if err := kill(pid); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.wait(t)
	if n := judge(c.out.String()); n < len(want) {
		t.Errorf("%d files were read while servers were killed", n)
	}
	if n := judge(w.must(t, "", "exec", "reader", "--", "sh", "-c", each+"f asked 1M a")); n != len(want) {
		t.Errorf("%d of %d files were read in the end", n, len(want))
	}
	if used := ringUsed(t, w); used < 1<<20 {
		t.Errorf("%d bytes of the memory for large answers are in the last server's use", used)
	}
	w.must(t, "", "rm", "-f", "reader")
	w.end(t)
}

// dataFile creates a file of random bytes behind a hole, and returns its sum.
func dataFile(t *testing.T, path string, size int, hole int64) string {
	t.Helper()
	b := make([]byte, size)
	rng := rand.New(rand.NewPCG(uint64(size), 1)) //nolint:gosec // test data
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, hole); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", md5.Sum(append(make([]byte, hole), b...))) //nolint:gosec // as above
}

// shareServers returns the processes that serve directories.
func shareServers(w *world) (pids []int) {
	for _, p := range w.processes() {
		if len(p.args) > 1 && filepath.Base(p.args[0]) == "bulkhead-share" && p.args[1] == "serve" {
			pids = append(pids, p.pid)
		}
	}
	return pids
}

// ringUsed returns the touched bytes of the memory for large answers in all servers.
func ringUsed(t *testing.T, w *world) (bytes int64) {
	t.Helper()
	for _, pid := range shareServers(w) {
		var st unix.Stat_t
		if err := unix.Stat(fmt.Sprintf("/proc/%d/fd/4", pid), &st); err == nil && st.Size == 8<<20 {
			bytes += st.Blocks * 512
		}
	}
	return bytes
}
