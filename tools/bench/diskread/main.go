// Command diskread runs in a container of the benchmark. It reads a file past the guest's page cache and prints the
// number of bytes and the nanoseconds that it needed.
//
//	diskread make FILE MIB           writes the file to read
//	diskread seq FILE BLOCK          reads all of it, BLOCK bytes at a time
//	diskread random FILE BLOCK COUNT reads COUNT random blocks
package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "diskread: "+err.Error())
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 3 {
		return fmt.Errorf("too few arguments")
	}
	size, err := strconv.Atoi(args[2])
	if err != nil || size <= 0 || size > 1<<24 {
		return fmt.Errorf("size %q", args[2])
	}
	switch verb := args[0]; {
	case verb == "make":
		return fill(args[1], size)
	case verb == "seq":
		return read(args[1], size, 0)
	case verb == "random" && len(args) == 4:
		count, err := strconv.Atoi(args[3])
		if err != nil || count <= 0 {
			return fmt.Errorf("count %q", args[3])
		}
		return read(args[1], size, count)
	}
	return fmt.Errorf("unknown command %v", args)
}

// fill writes mib MiB that no lower layer can store as a hole.
func fill(path string, mib int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i*7 + i>>8)
	}
	for range mib {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return f.Sync()
}

// read reads count random blocks, or all blocks in order if count is 0.
func read(path string, block, count int) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	blocks := int(info.Size()) / block
	if blocks == 0 {
		return fmt.Errorf("%s is smaller than a block", path)
	}
	// Anonymous memory has the alignment that direct reading needs.
	buf, err := unix.Mmap(-1, 0, block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		return err
	}
	// The same places every time.
	rng := rand.New(rand.NewPCG(3, 4))
	at := func(i int) int { return i }
	if count > 0 {
		at = func(int) int { return rng.IntN(blocks) }
	} else {
		count = blocks
	}
	began := time.Now()
	for i := range count {
		if _, err := f.ReadAt(buf, int64(at(i))*int64(block)); err != nil && err != io.EOF {
			return err
		}
	}
	fmt.Println(count*block, time.Since(began).Nanoseconds())
	return nil
}
