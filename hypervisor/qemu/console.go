package qemu

import (
	"net"
	"os"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// console copies the guest's console from QEMU's socket into a file. The file keeps the newest output, at most
// hypervisor.ConsoleLimit bytes.
//
// QEMU listens on the socket, because the alternatives fail: a file or its log grows forever, a pipe dies with its
// reader, and a ring buffer in QEMU dies with QEMU, when it is needed most. Without a connection, QEMU discards the
// output and the guest runs on. Output between the death of one owner and the next one's Adopt is lost. A slow reader
// holds up only the guest.
type console struct {
	conn net.Conn
	done chan struct{}

	mu   sync.Mutex
	file *os.File
	size int64
}

// drainTimeout bounds the wait for the output of a QEMU that has ended.
const drainTimeout = time.Second

func newConsole(file *os.File) *console {
	c := &console{file: file}
	if file != nil {
		if info, err := file.Stat(); err == nil {
			c.size = info.Size()
		}
	}
	return c
}

// follow copies the output of conn, and owns conn.
func (c *console) follow(conn net.Conn) {
	c.conn, c.done = conn, make(chan struct{})
	go c.copy()
}

func (c *console) copy() {
	defer close(c.done)
	buf := make([]byte, 4<<10)
	for {
		n, err := c.conn.Read(buf)
		c.write(buf[:n])
		if err != nil {
			return
		}
	}
}

// write appends to the file, and halves it when it is full. If the disk fails, the console's text is lost and the guest
// runs on.
func (c *console) write(b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil || len(b) == 0 {
		return
	}
	if c.size+int64(len(b)) > hypervisor.ConsoleLimit {
		keep := make([]byte, min(c.size, hypervisor.ConsoleLimit/2))
		n, _ := c.file.ReadAt(keep, c.size-int64(len(keep)))
		c.size = 0
		if c.file.Truncate(0) == nil {
			m, _ := c.file.WriteAt(keep[:n], 0)
			c.size = int64(m)
		}
	}
	n, _ := c.file.WriteAt(b, c.size)
	c.size += int64(n)
}

// tail returns at most the last n bytes.
func (c *console) tail(n int64) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil {
		return ""
	}
	buf := make([]byte, min(c.size, n))
	m, _ := c.file.ReadAt(buf, c.size-int64(len(buf)))
	return string(buf[:m])
}

// drained waits until everything that QEMU sent is in the file.
func (c *console) drained(d time.Duration) {
	if c.done == nil {
		return
	}
	select {
	case <-c.done:
	case <-time.After(d):
	}
}

func (c *console) close() {
	if c.conn != nil {
		c.conn.Close()
		<-c.done
	}
}
