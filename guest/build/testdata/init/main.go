// Init replaces the agent as the first process of the boot test's guest. It loads the modules of the list, reports on
// the console, and powers the VM off.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	fmt.Println("init: main")
	if err := run(); err != nil {
		fmt.Println("init: failed:", err)
	} else {
		fmt.Println("init: done")
	}
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Println("init: power off:", err)
	}
}

func run() error {
	list, err := os.Open("/etc/modules.load")
	if err != nil {
		return err
	}
	defer list.Close()
	lines := bufio.NewScanner(list)
	for lines.Scan() {
		path, parameters, _ := strings.Cut(lines.Text(), " ")
		if err := load(path, parameters); err != nil {
			return err
		}
		fmt.Println("init: loaded", path)
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return report()
}

func load(path, parameters string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), parameters, 0); err != nil {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}

// report prints what the kernel supports now.
func report() error {
	for target, kind := range map[string]string{"/proc": "proc", "/sys": "sysfs", "/dev": "devtmpfs"} {
		if err := unix.Mount(kind, target, kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	text, err := os.ReadFile("/proc/filesystems")
	if err != nil {
		return err
	}
	fmt.Printf("%s", text)
	for label, dir := range map[string]string{"disk": "/sys/block", "link": "/sys/class/net"} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			fmt.Println("init:", label, entry.Name())
		}
	}
	for _, program := range []string{"/usr/bin/crun", "/usr/bin/bulkhead-launcher"} {
		if _, err := os.Stat(program); err != nil {
			return err
		}
	}
	return memory()
}

// memory waits for the memory that virtio-mem adds to the initial 256 MiB.
func memory() error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		var info unix.Sysinfo_t
		if err := unix.Sysinfo(&info); err != nil {
			return err
		}
		total := info.Totalram * uint64(info.Unit) >> 20
		if total > 400 {
			fmt.Println("init: memory grew")
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("memory is still %d MiB", total)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
