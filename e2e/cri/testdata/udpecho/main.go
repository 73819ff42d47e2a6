// Udpecho returns datagrams at the UDP addresses in its arguments until one is "end".
package main

import (
	"log"
	"net"
	"os"
)

func main() {
	end := make(chan struct{})
	for _, address := range os.Args[1:] {
		conn, err := net.ListenPacket("udp", address)
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			buf := make([]byte, 1<<16)
			for {
				n, from, err := conn.ReadFrom(buf)
				if err != nil {
					log.Fatal(err)
				}
				if string(buf[:n]) == "end" {
					close(end)
				}
				if _, err := conn.WriteTo(buf[:n], from); err != nil {
					log.Print(err)
				}
			}
		}()
	}
	<-end
}
