// Command guestinit is PID 1 of the guests of the hypervisor's tests. It loads the virtio modules and runs one-line
// commands from the channel. Each gets a one-line answer.
package main

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// modules are in the order of their dependencies.
var modules = []string{
	"virtio_ring", "virtio", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
	"virtio_console", "virtio_blk", "virtio_mem", "failover", "net_failover", "virtio_net",
}

const portName = "io.bulkhead.channel"

func main() {
	fmt.Println("guestinit:", run())
	unix.Sync()
	unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// run serves until something fails.
func run() error {
	for fstype, dir := range map[string]string{"proc": "/proc", "sysfs": "/sys", "devtmpfs": "/dev"} {
		os.MkdirAll(dir, 0o755)
		if err := unix.Mount(fstype, dir, fstype, 0, ""); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", dir, err)
		}
	}
	if err := loadModules(); err != nil {
		return err
	}
	port, err := findPort()
	if err != nil {
		return err
	}
	fmt.Println("guestinit: ready")
	return serve(port)
}

func loadModules() error {
	found := map[string]string{}
	filepath.WalkDir("/", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "/proc" || path == "/sys" || path == "/dev" {
			return fs.SkipDir
		}
		if name, ok := strings.CutSuffix(d.Name(), ".ko"); ok {
			found[strings.ReplaceAll(name, "-", "_")] = path
		}
		return nil
	})
	for _, name := range modules {
		path, ok := found[name]
		if !ok {
			continue // built in
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = unix.FinitModule(int(f.Fd()), "", 0)
		f.Close()
		if err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load %s: %w", path, err)
		}
	}
	return nil
}

func findPort() (*os.File, error) {
	names, err := filepath.Glob("/sys/class/virtio-ports/*/name")
	if err != nil {
		return nil, err
	}
	for _, path := range names {
		b, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(b)) == portName {
			dev := "/dev/" + filepath.Base(filepath.Dir(path))
			// Without the runtime's poller: it would spin on a port that
			// no host has open.
			fd, err := unix.Open(dev, unix.O_RDWR, 0)
			if err != nil {
				return nil, fmt.Errorf("open %s: %w", dev, err)
			}
			return os.NewFile(uintptr(fd), dev), nil
		}
	}
	return nil, fmt.Errorf("no port %s among %q", portName, names)
}

// serve runs commands forever. A read that returns nothing means that no host is connected; poll would then return at
// once, with POLLHUP.
func serve(port *os.File) error {
	r := bufio.NewReader(port)
	var saved string
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			r.Reset(port)
			time.Sleep(2 * time.Millisecond)
			continue
		}
		answer, err := execute(strings.Fields(line), &saved)
		if err != nil {
			answer = "error " + err.Error()
		}
		if _, err := fmt.Fprintln(port, answer); err != nil {
			return err
		}
		if strings.HasPrefix(line, "chatter ") {
			if err := chatter(port, answer); err != nil {
				return err
			}
		}
	}
}

// chatter writes unsolicited lines, so that the guest always has one on its way. A write blocks while no host reads.
func chatter(port *os.File, count string) error {
	n, err := strconv.Atoi(count)
	for ; err == nil && n > 0; n-- {
		_, err = fmt.Fprintln(port, "chatter")
	}
	return err
}

func execute(args []string, saved *string) (string, error) {
	if len(args) == 0 {
		return "", errors.New("no command")
	}
	args = append(args, "", "", "") // so that operands exist, if empty
	switch args[0] {
	case "echo":
		return args[1], nil
	case "chatter": // operand: the number of lines after the answer
		return args[1], nil
	case "set":
		*saved = args[1]
		return *saved, nil
	case "get":
		return *saved, nil
	case "memory": // MiB that the kernel manages
		var info unix.Sysinfo_t
		err := unix.Sysinfo(&info)
		return strconv.FormatUint(info.Totalram*uint64(info.Unit)>>20, 10), err
	case "cpus":
		return strconv.Itoa(runtime.NumCPU()), nil
	case "devices": // vendor:device of everything on the PCI bus, each once
		return pciDevices()
	case "ports": // the ranges of I/O ports at which something answers
		return ports()
	case "list": // the entries of a directory
		entries, err := os.ReadDir(args[1])
		names := make([]string, len(entries))
		for i, e := range entries {
			names[i] = e.Name()
		}
		return strings.Join(names, ","), err
	case "lines": // of a file, with a '|' between two
		b, err := os.ReadFile(args[1])
		return strings.ReplaceAll(strings.TrimRight(string(b), "\n"), "\n", "|"), err
	case "read": // slot offset length
		return readDisk(args[1], args[2], args[3])
	case "size": // slot
		return diskSize(args[1])
	case "rebind": // operand: a slot. The driver reads its size again
		return rebind(args[1])
	case "write": // slot offset hex
		return writeDisk(args[1], args[2], args[3])
	case "flood": // bytes to the console
		n, err := strconv.Atoi(args[1])
		for i := 0; err == nil && i < n; i += 64 {
			_, err = fmt.Println(strings.Repeat("x", 63))
		}
		return "flooded", err
	case "panic":
		os.WriteFile("/proc/sysrq-trigger", []byte("c"), 0)
		return "", errors.New("survived a panic")
	case "off":
		unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	}
	return "", fmt.Errorf("unknown command %s", args[0])
}

func pciDevices() (string, error) {
	paths, err := filepath.Glob("/sys/bus/pci/devices/*")
	ids := map[string]bool{}
	for _, path := range paths {
		vendor, vendorErr := os.ReadFile(filepath.Join(path, "vendor"))
		device, deviceErr := os.ReadFile(filepath.Join(path, "device"))
		err = errors.Join(err, vendorErr, deviceErr)
		ids[strings.TrimSpace(string(vendor))+":"+strings.TrimSpace(string(device))] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(ids)), ","), err
}

func disk(serial string) (string, error) {
	all, _ := filepath.Glob("/sys/block/vd*/serial")
	for _, path := range all {
		if b, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(b)) == serial {
			return "/dev/" + filepath.Base(filepath.Dir(path)), nil
		}
	}
	return "", fmt.Errorf("no disk %s", serial)
}

// openDisk drops the kernel's cache of an earlier disk in the slot.
func openDisk(slot string, flags int) (*os.File, error) {
	dev, err := disk("slot" + slot)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(dev, flags|unix.O_SYNC, 0)
	if err != nil {
		return nil, err
	}
	return f, unix.IoctlSetInt(int(f.Fd()), unix.BLKFLSBUF, 0)
}

func readDisk(slot, offset, length string) (string, error) {
	f, err := openDisk(slot, os.O_RDONLY)
	if err != nil {
		return "", err
	}
	defer f.Close()
	off, err1 := strconv.ParseInt(offset, 10, 64)
	n, err2 := strconv.Atoi(length)
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	buf := make([]byte, n)
	_, err = f.ReadAt(buf, off)
	return hex.EncodeToString(buf), err
}

func writeDisk(slot, offset, data string) (string, error) {
	f, err := openDisk(slot, os.O_RDWR)
	if err != nil {
		return "", err
	}
	defer f.Close()
	off, err1 := strconv.ParseInt(offset, 10, 64)
	buf, err2 := hex.DecodeString(data)
	if err := errors.Join(err1, err2); err != nil {
		return "", err
	}
	_, err = f.WriteAt(buf, off)
	return "written", err
}

// diskSize returns the size of a slot's disk as the kernel sees it, in bytes.
func diskSize(slot string) (string, error) {
	dev, err := disk("slot" + slot)
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(filepath.Join("/sys/block", filepath.Base(dev), "size"))
	if err != nil {
		return "", err
	}
	sectors, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return strconv.FormatInt(sectors*512, 10), err
}

// rebind unbinds and binds a slot's device, so that the driver reads its size again.
func rebind(slot string) (string, error) {
	dev, err := disk("slot" + slot)
	if err != nil {
		return "", err
	}
	device, err := os.Readlink(filepath.Join("/sys/block", filepath.Base(dev), "device"))
	for _, verb := range []string{"unbind", "bind"} {
		if err == nil {
			err = os.WriteFile("/sys/bus/virtio/drivers/virtio_blk/"+verb, []byte(filepath.Base(device)), 0)
		}
	}
	return "bound", err
}
