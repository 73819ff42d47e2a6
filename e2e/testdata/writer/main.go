// Command writer writes numbered records to a file (package records). It syncs each record to the disk and then
// prints its number. If the file fails, it opens the file again and continues after the last complete record.
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
