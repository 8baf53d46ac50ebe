package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// Serves HTTP on 8080 and gRPC health on 9090 until SIGTERM. The health services "live" and "ready"
// are separate: GET /set?service=ready&to=NOT_SERVING changes one of them.
func serve([]string) error {
	services := health.NewServer()
	for _, name := range []string{"live", "ready"} {
		services.SetServingStatus(name, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	listener, err := net.Listen("tcp", ":9090")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(server, services)
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(listener) }()

	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		host, _ := os.Hostname()
		fmt.Fprintf(w, "probe of %s\n", host)
	})
	http.HandleFunc("/set", func(w http.ResponseWriter, r *http.Request) {
		to := grpc_health_v1.HealthCheckResponse_ServingStatus_value[r.FormValue("to")]
		services.SetServingStatus(r.FormValue("service"),
			grpc_health_v1.HealthCheckResponse_ServingStatus(to))
		fmt.Fprintf(w, "%s is %s\n", r.FormValue("service"), r.FormValue("to"))
	})
	go func() { ended <- http.ListenAndServe(":8080", nil) }()

	fmt.Println("probe: serving HTTP on 8080 and gRPC on 9090")
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	select {
	case err = <-ended:
		return err
	case <-signals:
		fmt.Println("probe: ending on a signal")
		return nil
	}
}
