// A container that shows what a node grants: `probe serve` answers over HTTP and gRPC, and the other
// commands, run with `kubectl exec`, print one fact each. It is the only file of its image.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const wait = 3 * time.Second

// The process's lines of /proc/self/status that say what it may do.
func privileges([]string) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	wanted := []string{"Uid", "CapEff", "NoNewPrivs", "Seccomp"}
	for _, line := range strings.Split(string(status), "\n") {
		key, value, _ := strings.Cut(line, ":")
		if slices.Contains(wanted, key) {
			fmt.Printf("%s=%s\n", key, strings.Fields(value)[0])
		}
	}
	return nil
}

// A system call that the runtime's default seccomp profile refuses and that any other process may make:
// keyctl(KEYCTL_GET_KEYRING_ID, KEY_SPEC_PROCESS_KEYRING, create).
func keyring([]string) error {
	const getKeyringID, processKeyring = 0, -2
	spec := processKeyring
	_, _, err := syscall.Syscall(syscall.SYS_KEYCTL, getKeyringID, uintptr(spec), 1)
	if err != 0 {
		return err
	}
	return nil
}

// Attaches a socket filter that lets everything pass. UCX's ports are closed to strangers with one.
func filter([]string) error {
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(socket)
	return syscall.AttachLsf(socket, []syscall.SockFilter{{Code: syscall.BPF_RET, K: 0xffffffff}})
}

func write(args []string) error {
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	return os.WriteFile(args[0], make([]byte, size), 0o644)
}

func read(args []string) error {
	text, err := os.ReadFile(args[0])
	os.Stdout.Write(text)
	return err
}

func mounted(args []string) error {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(args[0], &stat); err != nil {
		return err
	}
	fmt.Printf("bytes=%d\n", int64(stat.Blocks)*stat.Bsize)
	return nil
}

// Touches memory; above the container's limit the kernel ends this process.
func allocate(args []string) error {
	mib, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	held := make([]byte, mib<<20)
	for i := 0; i < len(held); i += 4096 {
		held[i] = 1
	}
	fmt.Printf("touched=%d\n", len(held))
	return nil
}

func resolve(args []string) error {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	addresses, err := net.DefaultResolver.LookupHost(ctx, args[0])
	slices.Sort(addresses)
	fmt.Println(strings.Join(addresses, " "))
	return err
}

func get(args []string) error {
	client := http.Client{Timeout: wait}
	answer, err := client.Get(args[0])
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(os.Stdout, io.LimitReader(answer.Body, 1<<16))
	return err
}

type command struct {
	arguments int
	run       func([]string) error
}

var commands = map[string]command{
	"allocate":   {1, allocate},
	"filter":     {0, filter},
	"get":        {1, get},
	"keyring":    {0, keyring},
	"mounted":    {1, mounted},
	"privileges": {0, privileges},
	"read":       {1, read},
	"resolve":    {1, resolve},
	"serve":      {0, serve},
	"write":      {2, write},
}

func main() {
	name := "serve"
	if len(os.Args) > 1 {
		name = os.Args[1]
	}
	chosen, known := commands[name]
	if !known || len(os.Args) > 1 && len(os.Args)-2 != chosen.arguments {
		fmt.Fprintf(os.Stderr, "probe: no command %q with %d arguments\n", name, len(os.Args)-2)
		os.Exit(2)
	}
	if err := chosen.run(os.Args[min(len(os.Args), 2):]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}
