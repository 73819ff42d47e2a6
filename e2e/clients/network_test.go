package clients

import (
	"io"
	"net"
	"time"
)

// connect returns the text that a server sends, or an empty string if it cannot be reached.
func connect(address string) string {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return ""
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	text, _ := io.ReadAll(conn)
	return string(text)
}
