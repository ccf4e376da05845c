"""Bring MLflow's database to the schema of this image, one pod at a time.

`mlflow db upgrade` takes no lock of its own, and of two that fill an empty database together one fails.
PostgreSQL's advisory lock makes the replicas queue; the later ones find nothing left to do.
"""

import configparser
import os
import subprocess
import zlib

import sqlalchemy

uri = os.environ["MLFLOW_BACKEND_STORE_URI"]
lock = {"key": zlib.crc32(b"lingraft/mlflow-schema")}
with sqlalchemy.create_engine(uri).connect() as connection:
    connection.execute(sqlalchemy.text("SELECT pg_advisory_lock(:key)"), lock)
    subprocess.run(["mlflow", "db", "upgrade", uri], check=True)
    if "MLFLOW_AUTH_CONFIG_PATH" in os.environ:
        users = configparser.ConfigParser()
        users.read(os.environ["MLFLOW_AUTH_CONFIG_PATH"])
        upgrade = ["python", "-m", "mlflow.server.auth", "db", "upgrade", "--url", users["mlflow"]["database_uri"]]
        subprocess.run(upgrade, check=True)
