// Watch waits until a name in a directory is replaced, as programs do that reload their configuration: watch DIRECTORY
// NAME. It prints "watching" before and "moved" after.
package main

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

func main() {
	if err := watch(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func watch(dir, name string) error {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	if err != nil {
		return err
	}
	if _, err := syscall.InotifyAddWatch(fd, dir, syscall.IN_MOVED_TO); err != nil {
		return err
	}
	fmt.Println("watching")
	buf := make([]byte, 4096)
	for {
		n, err := syscall.Read(fd, buf)
		if err != nil {
			return err
		}
		for rest := buf[:n]; len(rest) > 0; {
			e := (*syscall.InotifyEvent)(unsafe.Pointer(&rest[0]))
			end := syscall.SizeofInotifyEvent + int(e.Len)
			if string(bytes.TrimRight(rest[syscall.SizeofInotifyEvent:end], "\x00")) == name {
				fmt.Println("moved")
				return nil
			}
			rest = rest[end:]
		}
	}
}
