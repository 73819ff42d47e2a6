// Command filework works with the files of a directory: in a pod, in a VM or on the host. It prints the number of
// things it did and the nanoseconds that it needed.
//
//	filework [-drop] DIR VERB   does one work; -drop empties the kernel's caches first
//	filework serve              runs as process 1 of a VM: does the works named on its second serial port
package main

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	args := os.Args[1:]
	_ = os.Setenv("PATH", "/usr/bin:/bin") // process 1 has none
	if err := relaxTimers(); err != nil {
		fmt.Fprintln(os.Stderr, "filework: "+err.Error())
		os.Exit(1)
	}
	if len(args) == 1 && args[0] == "serve" {
		fmt.Println("filework:", serve())
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
		return
	}
	line, err := one(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "filework: "+err.Error())
		os.Exit(1)
	}
	fmt.Println(line)
}

// relaxTimers slows down the checks of Go's runtime on its threads, which run every 20 µs. Under emulation they would
// cost more than the files. It starts the program again, so that all threads inherit the timer slack of this one.
func relaxTimers() error {
	const slack, calmed = 10_000_000, "FILEWORK_CALM"
	if os.Getenv(calmed) != "" {
		return nil
	}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, slack, 0, 0, 0); err != nil {
		return err
	}
	program := "/proc/self/exe"
	if os.Getpid() == 1 { // there is no /proc yet
		program = os.Args[0]
	}
	return unix.Exec(program, os.Args, append(os.Environ(), calmed+"=1"))
}

const (
	files     = 2000
	smallSize = 1 << 10
	bigSize   = 64 << 20
	bigBlock  = 128 << 10
	page      = 4 << 10
	pages     = 1000
)

// works maps verbs to works. Each gets its directory and returns the number of things it did.
var works = map[string]func(dir string) (int, error){
	"make": func(dir string) (int, error) { return files, eachFile(dir, os.O_WRONLY|os.O_CREATE|os.O_EXCL, write) },
	"read": func(dir string) (int, error) { return files, eachFile(dir, os.O_RDONLY, read) },
	"walk": walk,
	"clone": func(dir string) (int, error) {
		return run(dir, "git", "clone", "-q", "--no-hardlinks", "tree.git", "clone")
	},
	"tar":       func(dir string) (int, error) { return run(dir, "busybox", "tar", "-xf", "tree.tar", "-C", "tar") },
	"seqwrite":  func(dir string) (int, error) { return big(dir, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, bigBlock, -1) },
	"seqread":   func(dir string) (int, error) { return big(dir, os.O_RDONLY, bigBlock, -1) },
	"randwrite": func(dir string) (int, error) { return big(dir, os.O_WRONLY, page, pages) },
	"randread":  func(dir string) (int, error) { return big(dir, os.O_RDONLY, page, pages) },
	"mmap":      mapped,
}

// one does the work of a line and returns its result.
func one(words []string) (string, error) {
	drop := len(words) > 0 && words[0] == "-drop"
	if drop {
		words = words[1:]
	}
	if len(words) != 2 || works[words[1]] == nil {
		return "", fmt.Errorf("unknown command %q", words)
	}
	if drop {
		unix.Sync()
		if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0); err != nil {
			return "", err
		}
	}
	began := time.Now()
	n, err := works[words[1]](words[0])
	if err != nil {
		return "", fmt.Errorf("%s: %w", words[1], err)
	}
	return fmt.Sprint(n, " ", time.Since(began).Nanoseconds()), nil
}

// eachFile opens small files in ten directories, which it creates.
func eachFile(dir string, flags int, do func(f *os.File) error) error {
	for i := range files {
		in := filepath.Join(dir, "small", strconv.Itoa(i/200))
		if flags&os.O_CREATE != 0 && i%200 == 0 {
			if err := os.MkdirAll(in, 0o755); err != nil {
				return err
			}
		}
		f, err := os.OpenFile(filepath.Join(in, strconv.Itoa(i)), flags, 0o644)
		if err != nil {
			return err
		}
		if err := do(f); err != nil {
			f.Close()
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return nil
}

func write(f *os.File) error {
	_, err := f.Write(make([]byte, smallSize))
	return err
}

func read(f *os.File) error {
	n, err := f.Read(make([]byte, 2*smallSize))
	if err == nil && n != smallSize {
		err = fmt.Errorf("%d bytes of %s", n, f.Name())
	}
	return err
}

// walk lists the directories below dir and stats every small file.
func walk(dir string) (n int, err error) {
	err = filepath.WalkDir(filepath.Join(dir, "small"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil {
			_, err = d.Info()
		}
		n++
		return err
	})
	return n, err
}

// run runs a program in dir, which counts as one thing.
func run(dir, name string, args ...string) (int, error) {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HOME=/")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	return 1, nil
}

// big reads or writes blocks of the large file: count random blocks, or all blocks in order if count is negative.
// It returns the number of bytes.
func big(dir string, flags, block, count int) (int, error) {
	f, err := os.OpenFile(filepath.Join(dir, "big"), flags, 0o644)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	move := f.WriteAt
	if flags&(os.O_WRONLY|os.O_RDWR) == 0 {
		move = f.ReadAt
	}
	rng := rand.New(rand.NewPCG(3, 4))
	at := func(int) int { return rng.IntN(bigSize / block) }
	if count < 0 {
		at, count = func(i int) int { return i }, bigSize/block
	}
	buf := make([]byte, block)
	for i := range buf {
		buf[i] = byte(i * 7)
	}
	for i := range count {
		if _, err := move(buf, int64(at(i))*int64(block)); err != nil {
			return 0, err
		}
	}
	return count * block, f.Close()
}

// mapped reads the large file through a mapping.
func mapped(dir string) (int, error) {
	f, err := os.Open(filepath.Join(dir, "big"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	b, err := unix.Mmap(int(f.Fd()), 0, bigSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, err
	}
	sum := 0
	for at := 0; at < len(b); at += page {
		sum += int(b[at])
	}
	if sum < 0 {
		return 0, unix.EIO
	}
	return bigSize, unix.Munmap(b)
}

// The shared directory of the VM, and QEMU's name for it.
const (
	shared = "/shared"
	tag    = "bench"
)

// serve mounts the shared directory and does the works that the host sends.
func serve() error {
	list, err := os.ReadFile("/etc/modules.load")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(list) + "/lib/modules/virtiofs.ko\n") {
		path, settings, _ := strings.Cut(strings.TrimSpace(line), " ")
		if err := load(path, settings); err != nil {
			return err
		}
	}
	for _, m := range [][3]string{{"devtmpfs", "/dev", "dev"}, {"proc", "/proc", "proc"}, {"virtiofs", shared, tag}} {
		if err := os.MkdirAll(m[1], 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m[2], m[1], m[0], 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m[1], err)
		}
	}
	port, err := os.OpenFile("/dev/hvc0", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer port.Close()
	raw, err := unix.IoctlGetTermios(int(port.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	raw.Lflag, raw.Oflag = unix.ICANON, 0
	if err := unix.IoctlSetTermios(int(port.Fd()), unix.TCSETS, raw); err != nil {
		return err
	}
	fmt.Fprintln(port, "ready")
	line := make([]byte, 4<<10)
	for {
		n, err := port.Read(line)
		if err != nil {
			return err
		}
		said, err := one(strings.Fields(string(line[:n])))
		if err != nil {
			said = "failed: " + strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Fprintln(port, said)
	}
}

func load(path, settings string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), settings, 0); err != nil {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}
