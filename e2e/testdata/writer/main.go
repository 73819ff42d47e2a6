// Command writer writes numbered records to a file (package records), has each written to the disk,
// and tells its number then. When the file fails it opens it again, and goes on after the last whole one.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/bulkhead-project/bulkhead/e2e/records"
)

func main() {
	for {
		err := write(os.Args[1])
		fmt.Fprintln(os.Stderr, "writer:", err)
		time.Sleep(20 * time.Millisecond)
	}
}

func write(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	n, size, err := records.Whole(f)
	if err != nil {
		return err
	}
	if err := f.Truncate(size); err != nil {
		return err
	}
	if _, err := f.Seek(size, 0); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	for {
		n++
		if _, err := f.Write(records.Record(n)); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		fmt.Println(n)
	}
}
