// Init is the first process of the guest that the boot test starts in place of
// the agent: it loads the modules as the list says, reports on the console, and
// powers the machine off.
package main

import (
	"bufio"
	"fmt"
	"os"

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
		if err := load(lines.Text()); err != nil {
			return err
		}
		fmt.Println("init: loaded", lines.Text())
	}
	if err := lines.Err(); err != nil {
		return err
	}
	return report()
}

func load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.FinitModule(int(f.Fd()), "", 0); err != nil {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}

// report prints what the kernel can do now.
func report() error {
	for target, kind := range map[string]string{"/proc": "proc", "/sys": "sysfs", "/dev": "devtmpfs"} {
		if err := unix.Mount(kind, target, kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", target, err)
		}
	}
	for _, file := range []string{"/proc/filesystems", "/proc/cgroups", "/proc/uptime", "/proc/meminfo"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Printf("init: %s\n%s", file, text)
	}
	disks, err := os.ReadDir("/sys/block")
	if err != nil {
		return err
	}
	for _, disk := range disks {
		fmt.Println("init: disk", disk.Name())
	}
	if _, err := os.Stat("/usr/bin/crun"); err != nil {
		return err
	}
	return nil
}
